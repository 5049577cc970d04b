"""Runs ``knft lint`` in this process, and reads its reports."""

import json
from pathlib import Path

import jsonschema
import msgspec
from click.testing import CliRunner, Result

import knft.lint.report as form
from knft.cli.commands import cli
from tests.support.knft_command import write_manifests
from tests.support.lint_objects import Object

SCHEMA = Path(form.__file__).with_name("report.schema.json")
BROKEN_CLUSTERS = Path(__file__).parents[1] / "lint" / "broken"


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    """Run the command in this process; raise its errors."""
    done = CliRunner().invoke(cli, ["lint", *arguments], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def written(folder: Path, *objects: Object) -> str:
    """Write objects to a new folder, and return its path."""
    folder.mkdir(parents=True)
    write_manifests(folder, objects)
    return str(folder)


def report_of(*arguments: str) -> form.LintReport:
    """Return the JSON output, which matches the schema."""
    found = invoke(*arguments, "-o", "json").stdout
    jsonschema.validate(json.loads(found), json.loads(SCHEMA.read_text()))
    return msgspec.json.decode(found, type=form.LintReport)
