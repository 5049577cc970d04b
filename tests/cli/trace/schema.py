"""Writes the JSON schema of traces: ``python -m tests.cli.trace.schema``."""

import json

import knft.interpret.trace as form
from tests.cli.trace.test_command import SCHEMA
from tests.support.json_schema import schema_of

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema_of(form.Trace), indent=2, ensure_ascii=False) + "\n")
