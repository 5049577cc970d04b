"""Lays out lines of text: wraps them to the width of a terminal, and colours them."""

from collections.abc import Iterator, Sequence

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
"""The parameters of terminal escape sequences, by style."""
_MIN_ROOM = 20
"""The least columns for text beside a label; with less room the text is on the next line."""


class Layout:
    """Lines of text. They wrap at ``width`` columns, or never without one, and have colours on request."""

    def __init__(self, width: int | None = None, *, colours: bool = False) -> None:
        """Begin without lines."""
        self._width, self._colours = width, colours
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All lines, each with a newline."""
        return "".join(f"{line}\n" for line in self._lines)

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Add a line; ``style`` is a list of words."""
        for part in self._wrapped(text, indent):
            self._add(" " * indent + self._styled(part, style))

    def has_room_for(self, text: str, indent: int) -> bool:
        """Return whether a text fits on one line."""
        return self._width is None or indent + columns_of(text) <= self._width

    def labelled(
        self, label: str, text: str, *, indent: int = 0, room: int, styles: tuple[str, str] = ("", "")
    ) -> None:
        """Add a label and a text beside it, which begins ``room`` columns after the label's beginning."""
        beside = indent + room
        if self._width is not None and self._width - beside < _MIN_ROOM:
            self.line(label, styles[0], indent=indent)
            self.line(text, styles[1], indent=indent + 2)
            return
        padding = " " * max(room - columns_of(label), 1)
        start = " " * indent + self._styled(label, styles[0]) + padding
        for part in self._wrapped(text, beside):
            self._add(start + self._styled(part, styles[1]))
            start = " " * beside

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a narrow table of numbers, with names in the first column."""
        sizes = [max(map(columns_of, column)) for column in zip(header, *rows, strict=True)]
        for cells, style in ((header, "dim"), *((row, "") for row in rows)):
            first, *rest = zip(cells, sizes, strict=True)
            text = "  ".join([first[0].ljust(first[1]), *(cell.rjust(size) for cell, size in rest)])
            self._add(self._styled(text, style))

    def _add(self, line: str) -> None:
        self._lines.append(line.rstrip())

    def _styled(self, text: str, style: str) -> str:
        return styled(text, style) if self._colours else text

    def _wrapped(self, text: str, indent: int) -> Iterator[str]:
        if self._width is None:
            yield text
            return
        yield from wrap(text, max(self._width - indent, 1))


def styled(text: str, style: str) -> str:
    """Return a text with escape sequences; ``style`` is a list of words, such as "bold red"."""
    codes = ";".join(_SGR[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def columns_of(text: str) -> int:
    """Return the number of columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - for text that is not ASCII alone

    return cell_len(text)


def wrap(text: str, width: int) -> Iterator[str]:
    """Yield a text in lines of at most ``width`` columns, broken at spaces; longer words are cut."""
    line, used = "", 0
    for word in text.split(" "):
        size = columns_of(word)
        if line and used + 1 + size > width:
            yield line
            line, used = "", 0
        if line:
            line, used = f"{line} {word}", used + 1 + size
            continue
        *full, line = _cut(word, width) if size > width else [word]
        yield from full
        used = columns_of(line)
    yield line


def _cut(word: str, width: int) -> list[str]:
    parts, part, used = [], "", 0
    for character in word:
        size = columns_of(character)
        if part and used + size > width:
            parts.append(part)
            part, used = "", 0
        part, used = part + character, used + size
    return [*parts, part]
