"""The JSON output of status, history and top matches its schema."""

import json

import msgspec
import pytest
from msgspec import structs

from knft.cli.status import StatusDocument
from knft.cli.status_text import Leftovers
from knft.control.messages import History
from tests.cli.example_status import FOUND, HISTORY, LEFTOVERS, STATES
from tests.cli.test_top import TOP
from tests.support.command_schemas import FORMS, schema_file, validated
from tests.support.json_schema import schema_of

STATUSES = [
    StatusDocument(**structs.asdict(status), leftovers=leftovers)
    for status, leftovers in ((FOUND, LEFTOVERS), *((each, Leftovers()) for each in STATES.values()))
]


@pytest.mark.parametrize("command", FORMS)
def test_schema_is_current(command: str) -> None:
    """``python -m tests.cli.write_golden`` updates it."""
    assert json.loads(schema_file(command).read_text()) == schema_of(FORMS[command])


@pytest.mark.parametrize(
    ("command", "document"),
    [*(("status", each) for each in STATUSES), ("history", HISTORY), ("history", History(())), ("top", TOP)],
)
def test_output_matches_the_schema(command: str, document: msgspec.Struct) -> None:
    assert validated(command, msgspec.json.encode(document))
