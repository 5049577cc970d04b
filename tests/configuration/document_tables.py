"""Writes the tables of options and feature gates in docs/configuration.md.

Run ``python -m tests.configuration.document_tables`` after a change of knft/configuration/table.py.
"""

from collections.abc import Iterator
from pathlib import Path

from knft.configuration.gates import GATES
from knft.configuration.options import Option
from knft.configuration.table import OPTIONS

DOCUMENT = Path(__file__).parents[2] / "docs/configuration.md"


def settings_table() -> Iterator[str]:
    """Yield the lines of the table of fields and flags."""
    yield "| field | flag | support | description |"
    yield "| --- | --- | --- | --- |"
    for option in OPTIONS:
        field = f"`{option.field}`" if option.field else ""
        yield f"| {field} | {_flags(option)} | {option.support.value} | {_description(option)} |"


def gates_table() -> Iterator[str]:
    """Yield the lines of the table of feature gates."""
    yield "| gate | in knft |"
    yield "| --- | --- |"
    for name, gate in GATES.items():
        yield f"| `{name}` | {gate.effect} |"


def _flags(option: Option) -> str:
    return ", ".join(f"`{flag}`" for flag in option.flags)


def _description(option: Option) -> str:
    prefix = "*only in knft*: " if option.is_knft_only else ""
    separator = "; " if option.field_note else ""
    return f"{prefix}{option.description}{separator}{option.field_note}".replace("|", "\\|")


def with_tables(text: str) -> str:
    """Return the document with up-to-date tables between its markers."""
    for name, lines in (("settings", settings_table()), ("feature gates", gates_table())):
        begin = f"<!-- {name}: written by tests/configuration/document_tables.py -->"
        end = f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join([before + begin, "", *lines, "", end + after])
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
