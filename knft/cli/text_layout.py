"""Lays out text for a terminal: lines, paragraphs, pairs of a label and a text, and rows, folded at its width.

Text that is piped keeps its lines, so that programs can search them.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from knft.cli.terminal import MIN_WIDTH
from knft.durations import format_duration
from knft.present.formatting import escape_invisible
from knft.present.layout import styled

_GAP = 2
_MIN_TEXT = 30
"""The least width of the last column of a row; a narrower one goes to a line of its own."""
_MAX_LABEL = 36
_NO_STYLES: Mapping[str, str] = MappingProxyType({})


def wrapped(first: str, text: str, width: int | None, indent: str) -> Iterator[str]:
    """Yield a text as lines; the first begins with ``first``, the others with ``indent``."""
    line = f"{first}{escape_invisible(text)}"
    if width is None or len(line) <= width:
        yield line.rstrip()
        return
    yield from textwrap.wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
    )


def fold(lines: Iterable[str], width: int | None) -> str:
    """Return lines as text; those that follow the first one of a folded line are indented further."""
    folded = (wrapped("", line, width, " " * (len(line) - len(line.lstrip()) + 2 * _GAP)) for line in lines)
    return "".join(f"{line}\n" for parts in folded for line in parts)


def format_seconds(seconds: float) -> str:
    """Return a duration such as 18.2 ms, 3.2 s or 2h3m4s."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(int(seconds) * 10**9)  # noqa: PLR2004 - a minute


class Layout:
    """Collects lines. A ``width`` of None never folds; untrusted text gets escapes for invisible characters.

    A style, such as "bold red", has an effect with ``colours`` only.
    """

    def __init__(self, width: int | None, *, colours: bool = False) -> None:
        """Start without lines."""
        self._width = None if width is None else max(width, MIN_WIDTH)
        self._colours = colours
        self._lines: list[str] = []

    def text(self) -> str:
        """Return all lines."""
        return "".join(f"{line.rstrip()}\n" for line in self._lines)

    def blank(self) -> None:
        """Add an empty line."""
        self._lines.append("")

    def paragraph(self, text: str, indent: int = 0, style: str = "") -> None:
        """Add a text; the lines that follow its first one are indented further."""
        start = len(self._lines)
        self._fold("", text, indent, indent + _GAP)
        if self._colours and style:
            for number, line in enumerate(self._lines[start:], start):
                content = line.lstrip()
                self._lines[number] = line.removesuffix(content) + styled(content, style)

    def pairs(self, pairs: Iterable[tuple[str, str]], indent: int = 0, styles: Mapping[str, str] = _NO_STYLES) -> None:
        """Add a label and a text on each line, the texts in one column; a long label gets a line of its own.

        ``styles`` are those of labels.
        """
        listed = [(escape_invisible(label), text) for label, text in pairs]
        column = max((len(label) for label, _ in listed if len(label) <= _MAX_LABEL), default=0) + _GAP
        for label, text in listed:
            if len(label) + _GAP > column and text:
                self._lines.append(" " * indent + label)
                label = ""  # noqa: PLW2901 - it has a line of its own
            start = len(self._lines)
            self._fold(label.ljust(column), text, indent, indent + column)
            if self._colours and (style := styles.get(label.rstrip())):
                self._lines[start] = self._lines[start].replace(label.rstrip(), styled(label.rstrip(), style), 1)

    def table(self, names: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[str], indent: int) -> None:
        """Add rows, each with a text after it, or below it if the width is too small.

        ``names`` are those of the columns; columns without values are left out. Rows that are wider than the width have
        the names of the columns before the values instead of above them.
        """
        cells = [[escape_invisible(cell) for cell in row] for row in rows]
        columns = [column for column in zip(names, *cells, strict=True) if any(column[1:])]
        widths = [max(map(len, column)) + _GAP for column in columns]
        width = sum(widths)
        is_beside = self._width is None or indent + width + _MIN_TEXT <= self._width
        is_aligned = self._width is None or indent + width - _GAP <= self._width
        if not is_aligned:
            self._named_rows(columns, texts, indent)
            return
        lines = ["".join(map(str.ljust, row, widths)) for row in zip(*columns, strict=True)]
        for line, text in zip(lines, ("", *texts), strict=True):
            if is_beside:
                self._fold(line, text, indent, indent + width)
            else:
                self._row(line.rstrip(), text, indent)

    def _named_rows(self, columns: Sequence[Sequence[str]], texts: Sequence[str], indent: int) -> None:
        (_, *first), *others = columns
        for number, (label, text) in enumerate(zip(first, texts, strict=True), 1):
            cells = (f"{column[0]} {column[number]}" for column in others if column[number])
            self._row(", ".join((label, *cells)), text, indent)

    def _row(self, line: str, text: str, indent: int) -> None:
        """Add a row with its text below it."""
        self._fold("", line, indent, indent + _GAP)
        if text:
            self._fold("", text, indent + _GAP, indent + 2 * _GAP)

    def _fold(self, label: str, text: str, indent: int, next_indent: int) -> None:
        line = " " * indent + label + escape_invisible(text)
        if self._width is None or len(line.rstrip()) <= self._width:
            self._lines.append(line)
            return
        self._lines += textwrap.wrap(
            escape_invisible(text),
            self._width,
            initial_indent=" " * indent + label,
            subsequent_indent=" " * next_indent,
            break_on_hyphens=False,
        )
