"""The tables of the README that come from the table of settings.

``python -m tests.configuration.readme_tables`` writes them.
"""

from collections.abc import Iterator
from pathlib import Path

from knft.configuration.gates import GATES
from knft.configuration.options import Option
from knft.configuration.table import OPTIONS

README = Path(__file__).parent.parent.parent / "README.md"
MARKS = {
    name: (f"<!-- {name}: python -m tests.configuration.readme_tables writes this table -->", f"<!-- end of {name} -->")
    for name in ("settings", "feature gates")
}


def settings_table() -> Iterator[str]:
    """Yield the lines of the table of flags and fields."""
    yield "| field | flag | is | |"
    yield "| --- | --- | --- | --- |"
    for row in OPTIONS:
        cells = (f"`{row.field}`" if row.field else "", _flags(row), row.support.value, _note(row))
        yield f"| {' | '.join(cells)} |"


def gates_table() -> Iterator[str]:
    """Yield the lines of the table of feature gates."""
    yield "| gate | here |"
    yield "| --- | --- |"
    for name, gate in GATES.items():
        refused = "; false is refused" if gate.is_locked else ""
        yield f"| `{name}` | {gate.description}{refused} |"


def _flags(row: Option) -> str:
    return ", ".join(f"`{flag}`" for flag in row.flags)


def _note(row: Option) -> str:
    own = "*knft's own*: " if row.is_knft_only else ""
    return f"{own}{row.description}{'; ' if row.field_note else ''}{row.field_note}".replace("|", "\\|")


def wanted(text: str) -> str:
    """Return the README with its tables as they should be."""
    for name, lines in (("settings", settings_table()), ("feature gates", gates_table())):
        begin, end = MARKS[name]
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join([before + begin, *lines, end + after])
    return text


if __name__ == "__main__":
    README.write_text(wanted(README.read_text()))
