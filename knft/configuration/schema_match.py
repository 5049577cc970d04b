"""Tells whether a document surely matches a JSON schema, without jsonschema.

On a node, knft reads such a file at each start, and it nearly always matches. Loading jsonschema would take much of
the start's CPU time, and its memory stays in use. jsonschema finds what is wrong with a file that does not match.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description"})


def matches(value: Any, schema: Schema) -> bool:  # noqa: ANN401 - any value of YAML
    """Return whether a value matches.

    False may also mean that this is not certain: if the schema has a keyword that is not known here, or for a number
    such as 1.0, which is an integer in JSON Schema. References must be to ``$defs``, and no schema may be ``true``.
    """
    return _matches(value, schema, schema.get("$defs", {}))


def _matches(value: Any, schema: Schema, definitions: Schema) -> bool:  # noqa: ANN401
    return all(
        _CHECKS.get(keyword, _is_unknown)(value, schema, definitions) for keyword in schema.keys() - _ANNOTATIONS
    )


def _is_unknown(*_: object) -> bool:
    return False


def _matches_reference(value: Any, schema: Schema, definitions: Schema) -> bool:  # noqa: ANN401
    return _matches(value, definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)


def _has_type(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    names = schema["type"]
    return any(_is_of_type(value, name) for name in ([names] if isinstance(names, str) else names))


def _is_of_type(value: Any, name: str) -> bool:  # noqa: ANN401
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _is_constant(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    return isinstance(value, str) and value == schema["const"]


def _has_pattern(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    return not isinstance(value, str) or re.search(schema["pattern"], value) is not None


def _is_large_enough(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    return not _is_of_type(value, "number") or value >= schema["minimum"]


def _is_small_enough(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    return not _is_of_type(value, "number") or value <= schema["maximum"]


def _has_required(value: Any, schema: Schema, _: Schema) -> bool:  # noqa: ANN401
    return not isinstance(value, dict) or value.keys() >= set(schema["required"])


def _items_match(value: Any, schema: Schema, definitions: Schema) -> bool:  # noqa: ANN401
    return not isinstance(value, list) or all(_matches(item, schema["items"], definitions) for item in value)


def _known_fields_match(value: Any, schema: Schema, definitions: Schema) -> bool:  # noqa: ANN401
    known: Schema = schema["properties"]
    names = value.keys() & known.keys() if isinstance(value, dict) else ()
    return all(_matches(value[name], known[name], definitions) for name in names)


def _other_fields_match(value: Any, schema: Schema, definitions: Schema) -> bool:  # noqa: ANN401
    others = value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ()
    wanted = schema["additionalProperties"]
    return not others or (wanted is not False and all(_matches(value[name], wanted, definitions) for name in others))


_CHECKS: Mapping[str, Callable[[Any, Schema, Schema], bool]] = {
    "$ref": _matches_reference,
    "type": _has_type,
    "const": _is_constant,
    "pattern": _has_pattern,
    "minimum": _is_large_enough,
    "maximum": _is_small_enough,
    "required": _has_required,
    "items": _items_match,
    "properties": _known_fields_match,
    "additionalProperties": _other_fields_match,
}
