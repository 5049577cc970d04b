"""Writes the JSON schema of traces: ``python -m tests.cli.trace.schema``."""

import json

from tests.cli.trace.test_command import SCHEMA, schema

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
