"""The source text of a manual page, with the macros of man(7)."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

_WIDTH = 78
"""Of a line of source text; mandoc warns about lines of more than 80 bytes."""
_CODE = re.compile(r"`([^`]+)`")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


class Page:
    """A page to which paragraphs are added, from top to bottom."""

    def __init__(self, name: str, section: int, summary: str, *, version: str, seconds: int) -> None:
        """Begin a page, such as knft-run in section 8; ``seconds`` since 1970 is its date."""
        self.name, self.section = name, section
        date = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
        self._lines = [f'.TH "{escape(name.upper())}" "{section}" "{date}" "knft {version}" "knft manual"']
        # Without hyphens and stretched lines, because readers copy names of flags and fields.
        self._lines += [".nh", ".ad l"]
        self.heading("NAME")
        self._lines += _filled(f"{escape(name)} \\- {escape(summary)}")

    @property
    def file_name(self) -> str:
        """The name of the page's file."""
        return f"{self.name}.{self.section}"

    def text(self) -> str:
        """Return the source text."""
        return "\n".join(self._lines) + "\n"

    def heading(self, title: str) -> None:
        """Begin a section."""
        self._lines.append(f'.SH "{escape(title)}"')

    def subheading(self, title: str) -> None:
        """Begin a part of a section."""
        self._lines.append(f'.SS "{escape(title)}"')

    def paragraph(self, text: str) -> None:
        """Add text, with `code` in backticks; flags in it become bold."""
        self._begin_paragraph()
        self._lines += _filled(marked(text))

    def _begin_paragraph(self) -> None:
        # A heading begins a paragraph too; mandoc warns about a second one.
        if not self._lines[-1].startswith((".SH", ".SS")):
            self._lines.append(".PP")

    def item(self, tag: str, *paragraphs: str) -> None:
        """Add an item of a list; ``tag`` is source text."""
        first, *others = paragraphs
        self._lines += [".TP", tag, *_filled(marked(first))]
        for text in others:
            self._lines += [".IP", *_filled(marked(text))]

    def example(self, *lines: str) -> None:
        """Add lines that are not filled."""
        self._begin_paragraph()
        self._lines += [".RS 4", ".nf", *(_guarded(escape(line)) for line in lines), ".fi", ".RE"]

    def line(self, source: str) -> None:
        """Add a line of source text."""
        self._lines.append(source)

    def see_also(self, pages: Iterable[str]) -> None:
        """Add the section that refers to pages such as nft(8)."""
        self.heading("SEE ALSO")
        references = [f"\\fB{escape(name)}\\fR({number}" for name, number in (page.split("(") for page in pages)]
        self._lines += _filled(",\n".join(references).replace("\n", " "))


def escape(text: str) -> str:
    """Return plain text as source text: a hyphen is printed as the ASCII character, so that it can be copied."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def bold(text: str) -> str:
    """Return plain text as bold source text."""
    return f"\\fB{escape(text)}\\fR"


def tag(text: str) -> str:
    """Return a flag with its value as source text: the flag is bold, the value italic."""
    parts: list[str] = []
    end = 0
    for match in _FLAG.finditer(text):
        parts += [_italic(text[end : match.start()]), bold(match[0])]
        end = match.end()
    return "".join([*parts, _italic(text[end:])])


def _italic(text: str) -> str:
    """Return the value of a flag in italics, with plain punctuation around it."""
    words = re.split(r"([\w.:|/]*[A-Za-z0-9][\w.:|/]*)", text)
    return "".join(f"\\fI{escape(word)}\\fR" if number % 2 else escape(word) for number, word in enumerate(words))


def marked(text: str) -> str:
    """Return text as source text: flags and `code` in backticks are bold."""
    return "".join(
        bold(part) if number % 2 else _with_bold_flags(part) for number, part in enumerate(_CODE.split(text))
    )


def _with_bold_flags(text: str) -> str:
    words = re.split(rf"({_FLAG.pattern})", text)
    return "".join(bold(word) if number % 2 else escape(word) for number, word in enumerate(words))


def _filled(source: str) -> Iterator[str]:
    for line in textwrap.wrap(source, _WIDTH, break_long_words=False, break_on_hyphens=False):
        yield _guarded(line)


def _guarded(line: str) -> str:
    r"""Return a line that does not begin with a control character; \& has no width."""
    return f"\\&{line}" if line.startswith((".", "'")) else line
