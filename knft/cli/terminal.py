"""The terminal that standard output is connected to: its width, and whether to use colours."""

import os
import shutil
import sys

MIN_WIDTH, MAX_WIDTH = 40, 200
"""The limits of the width; longer lines are hard to read."""


def terminal_width() -> int | None:
    """Return the columns of the terminal within the limits; None for a file or a pipe, whose lines are not wrapped."""
    return min(MAX_WIDTH, max(MIN_WIDTH, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else None


def use_colours() -> bool:
    """Return whether standard output is a terminal with colours and NO_COLOR is unset or empty (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
