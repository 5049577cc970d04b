"""Writes the golden texts and the JSON schema of reports: ``python -m tests.lint.write_golden``."""

import json
import tempfile
from pathlib import Path

import knft.lint.report as form
from tests.lint.test_command import GOLDEN, golden_texts
from tests.support.json_schema import schema_of
from tests.support.lint_reports import SCHEMA

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema_of(form.LintReport), indent=2, ensure_ascii=False) + "\n")
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in golden_texts(Path(folder)).items():
            (GOLDEN / f"{name}.txt").write_text(text)
