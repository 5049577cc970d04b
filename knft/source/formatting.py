"""Formatting of manifest values in messages: always short and in one line."""

from typing import Any

MAX_SHOWN_CHARACTERS = 60
"""Maximum number of characters of a text in a message."""
MAX_NAME_LENGTH = 253
"""Maximum length of a name in the API."""
_MAX_NUMBER_BITS = 128


class WrittenInt(int):
    """An integer that remembers its spelling in the manifest: 010, 0x1F90, 8_080."""

    text: str


class WrittenFloat(float):
    """A number that remembers its digits in the manifest: 1.10."""

    text: str


def format_value(value: object) -> str:
    """Return a value for a message: text in quotes, other values as in YAML."""
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
        case int() if value.bit_length() > _MAX_NUMBER_BITS:
            return "a very long number"
        case int() | float():
            return str(value)
        case _:
            return describe_type(value)


def describe_type(value: object) -> str:
    """Return the type of a value, such as "a number"."""
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


def object_name(location: str, kind: str, document: dict[str, Any]) -> str:
    """Return the name of an object for a message; its location in the file if it has no name."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") in (None, ""):
        return f"{location}: {kind}"
    parts = [_part(part) for part in (metadata.get("namespace"), metadata["name"]) if part is not None]
    return f"{kind} {'/'.join(parts)}"


def _part(part: object) -> str:
    return format_name(part) if isinstance(part, str) else format_value(part)


def format_name(text: str) -> str:
    """Return a name without quotes if it looks like one, otherwise with quotes."""
    return text if 0 < len(text) <= MAX_NAME_LENGTH and text.isprintable() and " " not in text else format_value(text)


def join_alternatives(alternatives: tuple[object, ...]) -> str:
    """Return ``a, b or c``."""
    *first, last = map(str, alternatives)
    return f"{', '.join(first)} or {last}" if first else last
