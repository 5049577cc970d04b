"""The output of ``knft preflight`` as text at several widths, and its JSON schema."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

import knft.preflight.report as form
from knft.cli.preflight_text import format_preflight
from knft.preflight.checks import check
from tests.support.json_schema import schema_of
from tests.support.node_facts import ready, with_findings

SCHEMA = Path(form.__file__).with_name("preflight.schema.json")
GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}
NODES = {"ready": ready, "findings": with_findings}


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("width", WIDTHS)
def test_text_is_golden(name: str, width: str) -> None:
    """``python -m tests.preflight.write_golden`` writes the files, to be reviewed."""
    text = golden_text(name, width)
    assert (GOLDEN / f"{name}-{width}.txt").read_text() == text
    limit = WIDTHS[width]
    assert limit is None or max(map(len, text.splitlines())) <= limit


def golden_text(name: str, width: str) -> str:
    """Return the text about a node."""
    return format_preflight(check(NODES[name]()), WIDTHS[width])


def test_point_that_was_not_checked_says_so_once() -> None:
    """In a point with a worse finding, the label says which finding was not checked."""
    text = format_preflight(check(replace(ready(), configuration=None)), None)
    assert (
        "\n\nconfiguration: not checked\n"
        "  reason       no configuration file was given\n"
        "  remedy       name kube-proxy's file with --config\n"
    ) in text
    assert "\n  not checked  rules of kube-proxy: " in golden_text("findings", "piped")


def test_golden_files_are_those_of_the_nodes() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {f"{name}-{width}" for name in NODES for width in WIDTHS}


@pytest.mark.parametrize("name", NODES)
def test_json_output_matches_the_schema(name: str) -> None:
    found = json.loads(msgspec.json.encode(check(NODES[name]())))
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))


def test_schema_is_current() -> None:
    """``python -m tests.preflight.write_golden`` updates it."""
    assert json.loads(SCHEMA.read_text()) == schema_of(form.Preflight)
