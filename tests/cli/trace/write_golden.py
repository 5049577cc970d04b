"""Writes the golden texts and the JSON schema of traces: ``python -m tests.cli.trace.write_golden``."""

import json
import tempfile
from pathlib import Path

import knft.interpret.trace as form
from tests.cli.trace.test_command import GOLDEN, SCHEMA, golden_texts
from tests.support.json_schema import schema_of
from tests.support.traced_cluster import write_manifests

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema_of(form.Trace), indent=2, ensure_ascii=False) + "\n")
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in golden_texts(write_manifests(Path(folder))).items():
            (GOLDEN / f"{name}.txt").write_text(text)
