"""Writes the golden texts and the JSON schema of explanations: ``python -m tests.explain.write_golden``."""

import json
import tempfile
from pathlib import Path

import knft.explain.explanation as form
from tests.explain.test_command import GOLDEN, QUESTIONS, SCHEMA, WIDTHS, golden_text
from tests.support.json_schema import schema_of
from tests.support.shop import source, write_manifests

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        shop = source(write_manifests(Path(folder)))
        for name in QUESTIONS:
            for width in WIDTHS:
                (GOLDEN / f"{name}-{width}.txt").write_text(golden_text(shop, name, width))
    SCHEMA.write_text(json.dumps(schema_of(form.Explanation), indent=2, ensure_ascii=False) + "\n")
