"""Writes the tables of options and feature gates in docs/configuration.md.

Run ``python -m tests.configuration.document_tables`` after a change of knft/configuration/table.py.
"""

from collections.abc import Iterator
from pathlib import Path

from knft.configuration.gates import GATES
from knft.configuration.options import Option
from knft.configuration.table import OPTIONS

DOCUMENT = Path(__file__).parents[2] / "docs/configuration.md"


def own_flags_table() -> Iterator[str]:
    """Yield the lines of the table of flags that kube-proxy does not have."""
    yield "| flag | description |"
    yield "| --- | --- |"
    for option in OPTIONS:
        if option.is_knft_only:
            yield f"| {_flags(option)} | {_description(option)} |"


def fields_table() -> Iterator[str]:
    """Yield the lines of the table of the fields of kube-proxy's configuration file, with their flags."""
    yield "| field | flag | support | description |"
    yield "| --- | --- | --- | --- |"
    for option in OPTIONS:
        if option.field:
            yield f"| `{option.field}` | {_flags(option)} | {option.support.value} | {_description(option)} |"


def flags_table() -> Iterator[str]:
    """Yield the lines of the table of kube-proxy's flags without a field."""
    yield "| flag | support | description |"
    yield "| --- | --- | --- |"
    for option in OPTIONS:
        if not option.field and not option.is_knft_only:
            yield f"| {_flags(option)} | {option.support.value} | {_description(option)} |"


def gates_table() -> Iterator[str]:
    """Yield the lines of the table of feature gates."""
    yield "| gate | in knft |"
    yield "| --- | --- |"
    for name, gate in GATES.items():
        yield f"| `{name}` | {gate.effect} |"


def _flags(option: Option) -> str:
    return ", ".join(f"`{flag}`" for flag in option.flags)


def _description(option: Option) -> str:
    separator = "; " if option.field_note else ""
    return f"{option.description}{separator}{option.field_note}".replace("|", "\\|")


def with_tables(text: str) -> str:
    """Return the document with up-to-date tables between its markers."""
    for name, lines in (
        ("flags of knft", own_flags_table()),
        ("fields", fields_table()),
        ("flags without a field", flags_table()),
        ("feature gates", gates_table()),
    ):
        begin = f"<!-- {name}: written by tests/configuration/document_tables.py -->"
        end = f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join([before + begin, "", *lines, "", end + after])
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
