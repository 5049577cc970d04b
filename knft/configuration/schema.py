"""Validates a document against the JSON schema of KubeProxyConfiguration."""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from knft.configuration.document import KIND
from knft.source.formatting import describe_type, format_name, format_value

MAX_REPORTED = 20
"""Maximum number of problems, and of unknown fields, reported for a file."""


class SchemaResult(NamedTuple):
    """Messages that begin with a field's path: errors, and unknown fields."""

    problems: tuple[str, ...]
    unknown: tuple[str, ...]


def schema() -> dict[str, Any]:
    """Return the schema."""
    text = files("knft.configuration").joinpath("kubeproxyconfiguration.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema())


def validate(document: dict[str, Any]) -> SchemaResult:
    """Return the errors and unknown fields of a document."""
    errors = sorted(_validator().iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path])
    problems = [_error_message(error) for error in errors if error.validator != "additionalProperties"]
    unknown = [path for error in errors if error.validator == "additionalProperties" for path in _unknown(error)]
    return SchemaResult(tuple(limit_messages(problems)), tuple(limit_messages(unknown)))


def limit_messages(messages: list[str]) -> list[str]:
    """Return the first MAX_REPORTED messages; if there are more, add a message with the number of the others."""
    omitted = len(messages) - MAX_REPORTED
    return messages if omitted <= 0 else [*messages[:MAX_REPORTED], f"not shown: {omitted} more"]


def field_path(parts: Iterable[str | int]) -> str:
    """Return a field's name in messages, such as ``KubeProxyConfiguration.nodePortAddresses[1]``."""
    return KIND + "".join(f"[{part}]" if isinstance(part, int) else f".{format_name(part)}" for part in parts)


def _unknown(error: ValidationError) -> list[str]:
    known, instance = _schema_of(error)["properties"], cast("dict[str, Any]", error.instance)
    return [
        f"{field_path([*error.absolute_path, name])}: unknown field, ignored" for name in instance if name not in known
    ]


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
