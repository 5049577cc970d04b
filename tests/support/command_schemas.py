"""The JSON schemas of commands without a package of their own: ``python -m tests.cli.write_golden`` writes them."""

import json
from pathlib import Path

import jsonschema
from msgspec import Struct

import knft.cli
from knft.cli.cleanup_report import CleanupDocument
from knft.cli.completion_document import CompletionDocument
from knft.cli.status import StatusDocument
from knft.cli.top_text import Top
from knft.cli.version import Versions
from knft.control.messages import History

FORMS: dict[str, type[Struct]] = {
    "cleanup": CleanupDocument,
    "completion": CompletionDocument,
    "status": StatusDocument,
    "history": History,
    "top": Top,
    "version": Versions,
}


def schema_file(command: str) -> Path:
    """Return the file with the schema of a command's JSON output."""
    return Path(knft.cli.__file__).with_name(f"{command}.schema.json")


def validated(command: str, output: str | bytes) -> object:
    """Return the decoded JSON output of a command, which matches its schema."""
    found = json.loads(output)
    jsonschema.validate(found, json.loads(schema_file(command).read_text()))
    return found
