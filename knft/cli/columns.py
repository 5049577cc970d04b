"""Fits lines of text to the terminal; text that is piped keeps its lines, so that programs can search them."""

import shutil
import sys
import textwrap
from collections.abc import Iterator

from knft.durations import format_duration
from knft.present.formatting import escape_invisible

MIN_WIDTH = 40


def output_width() -> int | None:
    """Return the columns of the terminal, None if the output is no terminal."""
    return max(MIN_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def wrapped(first: str, text: str, width: int | None, indent: str) -> Iterator[str]:
    """Yield a text as lines; the first begins with ``first``, the others with ``indent``."""
    line = f"{first}{escape_invisible(text)}"
    if width is None or len(line) <= width:
        yield line.rstrip()
        return
    yield from textwrap.wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
    )


def format_seconds(seconds: float) -> str:
    """Return a duration such as 18.2 ms, 3.2 s or 2h3m4s."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(int(seconds) * 10**9)  # noqa: PLR2004 - a minute
