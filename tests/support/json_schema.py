"""The JSON schema of a format that a struct describes."""

import json
from inspect import cleandoc
from typing import Any

import msgspec


def schema_of(form: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema, with the docstrings of the structs, in which other keys are mistakes."""
    found = msgspec.json.schema(form)
    for kind in found["$defs"].values():
        kind["description"] = cleandoc(kind["description"])
        kind["additionalProperties"] = False
    written: dict[str, Any] = json.loads(
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **found})
    )
    return written
