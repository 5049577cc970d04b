"""Readable messages for msgspec's errors, with the user's own value."""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import inspect

from knft.model.objects import KubeObject
from knft.source.formatting import WrittenFloat, describe_type, format_value, join_alternatives
from knft.source.validate import FieldProblem

_INDEX = re.compile(r"\[([0-9]+)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class _FieldValue(NamedTuple):
    """The field of an error, its value, and the expected type."""

    field: str
    value: Any
    expected: inspect.Type


def describe_decode_error(document: dict[str, Any], kind: type[KubeObject], error: str) -> FieldProblem:
    """Return the field of a msgspec error, and what is wrong with it."""
    message, _, path = error.partition(" - at `$")
    located = _locate(document, _type_of(kind), path.rstrip("`"))
    missing = _MISSING.fullmatch(message)
    if missing is not None:
        return f"{located.field}.{missing[1]}".lstrip("."), "it is missing"
    return located.field.lstrip("."), _describe_problem(located.value, located.expected) or message


@lru_cache
def _type_of(kind: type[KubeObject]) -> inspect.Type:
    return inspect.type_info(kind)


def _without_none(expected: inspect.Type) -> inspect.Type:
    """Return a type without ``| None``."""
    if isinstance(expected, inspect.UnionType):
        return _without_none(next(item for item in expected.types if not isinstance(item, inspect.NoneType)))
    return expected


def _locate(value: Any, expected: inspect.Type, path: str) -> _FieldValue:  # noqa: ANN401 - YAML has every type
    """Follow msgspec's path, such as ``.spec.ports[0].port``, in the document and its type; names may contain dots."""
    field = ""
    while path:
        inner = _without_none(expected)
        index = _INDEX.match(path)
        if isinstance(inner, inspect.VarTupleType) and index is not None:
            value, expected = value[int(index[1])], inner.item_type
            field, path = field + index[0], path[index.end() :]
        elif isinstance(inner, inspect.StructType):
            step = max(
                (item for item in inner.fields if _starts_with_field(path, item.encode_name)),
                key=lambda item: len(item.encode_name),
            )
            name = step.encode_name
            value, expected = value[name], step.type
            field, path = field + (f"['{name}']" if "/" in name else f".{name}"), path[len(name) + 1 :]
        else:
            break
    return _FieldValue(field, value, expected)


def _starts_with_field(path: str, name: str) -> bool:
    return path.startswith(f".{name}") and path[len(name) + 1 : len(name) + 2] in ("", ".", "[")


def _describe_problem(value: Any, expected: inspect.Type) -> str:  # noqa: ANN401 - YAML has every type
    """Return what is wrong with ``value``, or "" if unknown."""
    bare = _without_none(expected)
    match bare:
        case inspect.Metadata():
            rule = str((bare.extra_json_schema or {}).get("description", ""))
            return _describe_problem(value, bare.type) or f"{format_value(value)} is not {rule}"
        case inspect.LiteralType():
            return f"{format_value(value)} is not {join_alternatives(bare.values)}"
        case inspect.IntType():
            return _describe_number_problem(value, bare)
        case inspect.StrType():
            return _describe_text_problem(value, bare)
        case inspect.BoolType():
            return f"{format_value(value)} is not true or false"
        case _:
            expected_type = "a list" if isinstance(bare, inspect.VarTupleType) else "a mapping"
            return f"{_describe_value(value)}, expected {expected_type}"


def _describe_value(value: object) -> str:
    return (
        f"{format_value(value)} is {describe_type(value)}"
        if isinstance(value, str | int | float)
        else f"it is {describe_type(value)}"
    )


def _describe_number_problem(value: object, expected: inspect.IntType) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{format_value(value)} is not between {expected.ge} and {expected.le}"
    if isinstance(value, WrittenFloat) and value.text.isdigit():
        return f"{value.text} is not a valid octal number; remove the leading 0"
    advice = ", without quotes" if isinstance(value, str) and value.isdigit() else ""
    return f"{_describe_value(value)}, expected a whole number{advice}"


def _describe_text_problem(value: object, expected: inspect.StrType) -> str:
    if not isinstance(value, str):
        advice = "" if isinstance(value, list | dict | None) else "; put it in quotes"
        if isinstance(value, bool):
            advice += " (in YAML, yes, no, on and off are booleans)"
        return f"{_describe_value(value)}, expected text{advice}"
    if expected.min_length and not value:
        return "it is empty"
    if expected.max_length is not None and len(value) > expected.max_length:
        return f"it has {len(value)} characters, at most {expected.max_length} are allowed"
    return ""
