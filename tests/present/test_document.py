"""The JSON report matches its schema and is complete."""

import json as parser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import knft.present
from knft.interpret.compare.report import Report
from knft.present import json
from tests.present import example_report
from tests.present.hostile_report import HOSTILE_TEXTS, hostile_report

_SCHEMA = parser.loads(Path(knft.present.__path__[0], "report.schema.json").read_text())


def parsed(report: Report) -> Any:
    return parser.loads(json(report))


@pytest.mark.parametrize("name", ["realistic", "equal", "expected", "undecided"])
def test_report_matches_the_schema(name: str) -> None:
    report = getattr(example_report, name)()

    jsonschema.Draft202012Validator(_SCHEMA).validate(parsed(report))
    jsonschema.Draft202012Validator(_SCHEMA).validate(parsed(hostile_report()))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("realistic", "different"), ("equal", "equal"), ("expected", "equal"), ("undecided", "undecided")],
)
def test_verdict_of_each_report(name: str, verdict: str) -> None:
    assert parsed(getattr(example_report, name)())["verdict"] == verdict


def test_groups_are_sorted_into_differences_undecided_and_expected() -> None:
    first, second = parsed(example_report.realistic())["families"]

    assert [item["cause"] for item in first["differences"]] == ["verdict"] * 3 + ["endpoints", "masquerade", "affinity"]
    assert first["differences"][0]["left"] == "reaches 10.244.1.17:8080"
    assert first["differences"][0]["right"] == "is rejected"
    assert len(first["differences"][0]["examples"]) == 2
    assert [item["service"] for item in first["undecided"]] == ["data/postgres:sql"]
    assert [item["line"] for item in first["unread"]] == [17]
    assert {item["reason"] for item in second["by_intent"]} == {"unallocated cluster IP", "NodePorts on all addresses"}
    assert first["counts"] == {"equal": 18412, "by_intent": 212, "different": 30, "undecided": 3}


def test_untrusted_text_is_complete_and_the_document_is_ascii() -> None:
    text = json(hostile_report())

    assert text.isascii()
    services = [item["service"] for item in parser.loads(text)["families"][0]["differences"]]
    assert services == list(HOSTILE_TEXTS)
