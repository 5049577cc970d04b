"""Finds where and why a document does not match the JSON schema of KubeProxyConfiguration."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from knft.configuration.document import KIND
from knft.configuration.problems import MAX_REPORTED, Problem, did_you_mean
from knft.configuration.table import FIELDS
from knft.source.formatting import describe_type, format_name, format_value, join_alternatives


def find_problems(document: dict[str, Any], schema: dict[str, Any]) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Return the errors and unknown fields of a document; messages begin with the field's path."""
    errors = list(Draft202012Validator(schema).iter_errors(document))
    problems = tuple(
        Problem(tuple(error.absolute_path), _error_message(error))
        for error in errors
        if error.validator != "additionalProperties"
    )
    unknown = (found for error in errors if error.validator == "additionalProperties" for found in _unknown(error))
    return problems, tuple(unknown)


def field_path(parts: Iterable[str | int]) -> str:
    """Return a field's name in messages, such as ``KubeProxyConfiguration.nodePortAddresses[1]``."""
    return KIND + "".join(f"[{part}]" if isinstance(part, int) else f".{format_name(part)}" for part in parts)


def _unknown(error: ValidationError) -> Iterator[Problem]:
    known, instance = _schema_of(error)["properties"], cast("dict[str, Any]", error.instance)
    for number, name in enumerate(name for name in instance if name not in known):
        path = (*error.absolute_path, name)
        # A search takes 0.1 ms, so that thousands of fields that are not reported would take a second.
        suggestion = _suggestion(name, known) if number < MAX_REPORTED else ""
        yield Problem(path, f"{field_path(path)}: unknown field, ignored{suggestion}")


def _suggestion(name: str, fields_of_section: Iterable[str]) -> str:
    """Return the field that an unknown one may mean: a similar one of its section, or one of this name in another."""
    others = [path for path in FIELDS if path.rpartition(".")[2].lower() == name.lower()]
    return did_you_mean(name, fields_of_section) or (
        f"; did you mean {join_alternatives(tuple(others))}?" if others else ""
    )


def _error_message(error: ValidationError) -> str:
    path, value, field_schema = field_path(error.absolute_path), error.instance, _schema_of(error)
    title = field_schema.get("title", "text")
    if error.validator in ("minimum", "maximum"):
        return f"{path}: {format_value(value)} is not between {field_schema['minimum']} and {field_schema['maximum']}"
    if error.validator == "pattern":
        example = "4Ki" if "bytes" in title else "1s, 500ms or 1m30s"
        return f"{path}: {format_value(value)} is not {title}; write it as in {example}"
    return f"{path}: it is {_describe_value(value)}, but must be {title}"


def _schema_of(error: ValidationError) -> dict[str, Any]:
    return cast("dict[str, Any]", error.schema)


def _describe_value(value: object) -> str:
    return (
        describe_type(value)
        if isinstance(value, dict | list) or value is None
        else f"{describe_type(value)}, {format_value(value)}"
    )
