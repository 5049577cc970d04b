"""Validates a document against the JSON schema of KubeProxyConfiguration."""

import json
from importlib.resources import files
from typing import Any, NamedTuple

from knft.configuration.problems import Problem
from knft.configuration.schema_match import matches


class SchemaResult(NamedTuple):
    """Problems whose messages begin with a field's path: errors, and unknown fields."""

    problems: tuple[Problem, ...]
    unknown: tuple[Problem, ...]


def schema() -> dict[str, Any]:
    """Return the schema."""
    text = files("knft.configuration").joinpath("kubeproxyconfiguration.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def validate(document: dict[str, Any]) -> SchemaResult:
    """Return the errors and unknown fields of a document."""
    found = schema()
    if matches(document, found):
        return SchemaResult((), ())
    from knft.configuration.schema_problems import find_problems  # noqa: PLC0415 - jsonschema takes long to load

    return SchemaResult(*find_problems(document, found))
