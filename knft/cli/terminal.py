"""The terminal that standard output is connected to: its width, and whether to use colours."""

import os
import shutil
import sys

_DEFAULT_SIZE = (80, 24)


def terminal_width() -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, whose lines are never wrapped."""
    return shutil.get_terminal_size(_DEFAULT_SIZE).columns if sys.stdout.isatty() else None


def use_colours() -> bool:
    """Return whether standard output is a terminal with colours and NO_COLOR is unset or empty (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
