"""Writes the golden texts and the JSON schema of ``knft preflight``: ``python -m tests.preflight.write_golden``."""

import json

import knft.preflight.report as form
from tests.preflight.test_text import GOLDEN, NODES, SCHEMA, WIDTHS, golden_text
from tests.support.json_schema import schema_of

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in NODES:
        for width in WIDTHS:
            (GOLDEN / f"{name}-{width}.txt").write_text(golden_text(name, width))
    SCHEMA.write_text(json.dumps(schema_of(form.Preflight), indent=2, ensure_ascii=False) + "\n")
