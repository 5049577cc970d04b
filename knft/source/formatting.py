"""Words for the operator: values of manifests in messages, always one line, never long."""

from typing import Any

MAX_SHOWN_CHARACTERS = 60
"""How many characters of a text a message shows."""
LONGEST_NAME = 253
"""How many characters a name has at the most."""
_LONGEST_NUMBER_BITS = 128


class WrittenInt(int):
    """A whole number that is not written as Python would: 010, 0x1F90, 8_080."""

    text: str


class WrittenFloat(float):
    """A number with the user's own digits: 1.10."""

    text: str


def format_value(value: object) -> str:
    """Return a value as a message may show it: text in quotes, everything else in the words of YAML."""
    match value:
        case str():
            return (
                repr(value)
                if len(value) <= MAX_SHOWN_CHARACTERS
                else f"{value[:MAX_SHOWN_CHARACTERS]!r}... ({len(value)} characters)"
            )
        case WrittenInt() | WrittenFloat():
            return value.text
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > _LONGEST_NUMBER_BITS:
            return "a very long number"
        case int() | float():
            return str(value)
        case _:
            return describe_type(value)


def describe_type(value: object) -> str:
    """Return what sort of value this is."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def object_name(where: str, kind: str, document: dict[str, Any]) -> str:
    """Return how a message names an object; by its place in the file if the document does not say who it is."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") in (None, ""):
        return f"{where}: {kind}"
    parts = [_part(part) for part in (metadata.get("namespace"), metadata["name"]) if part is not None]
    return f"{kind} {'/'.join(parts)}"


def _part(part: object) -> str:
    return format_name(part) if isinstance(part, str) else format_value(part)


def format_name(text: str) -> str:
    """Return a name without quotes, if it could be one."""
    return text if 0 < len(text) <= LONGEST_NAME and text.isprintable() and " " not in text else format_value(text)


def join_alternatives(words: tuple[object, ...]) -> str:
    """Return ``a, b or c``."""
    *first, last = map(str, words)
    return f"{', '.join(first)} or {last}" if first else last
