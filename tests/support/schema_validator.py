"""Validators of JSON documents: of jsonschema-rs, or of jsonschema where only Debian's packages are installed."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Protocol


class Validator(Protocol):
    """A schema."""

    def validate(self, instance: Any) -> None:
        """Raise an error if the document does not match."""


def schema_validator(schema: Mapping[str, Any]) -> Validator:
    """Return the validator of a schema of the draft 2020-12."""
    if find_spec("jsonschema_rs") is None:
        import jsonschema

        return jsonschema.Draft202012Validator(schema)
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(dict(schema), validate_formats=True)
