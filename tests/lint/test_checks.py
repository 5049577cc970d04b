"""Each check finds its mistake, and nothing in the correct manifests beside it."""

import json
import re
from pathlib import Path

import pytest

from knft.cli.lint import problems_without_check
from knft.config import Config
from knft.lint.checks import Check
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.lint.report import LintReport
from knft.source.decode import decode
from knft.source.described_kinds import LINTED_KINDS
from tests.lint.cases import CASES, Case
from tests.lint.objects import Object

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "operations" / "lint.md"


def linted(*objects: Object, config: Config | None = None, node: str | None = None) -> LintReport:
    """Return the report about objects."""
    decoded = decode(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode(), LINTED_KINDS)
    return lint(manifests_of(decoded.objects, config or Config(""), node, problems_without_check(decoded.problems)))


def lines(report: LintReport) -> list[tuple[str, str]]:
    """Return the identifier of each finding, and a line with its object and text."""
    return [
        (each.id, " ".join([f"{each.severity}: {each.object}", *each.ports, *_nodes(each.nodes)]) + f": {each.what}")
        for each in report.findings
    ]


def _nodes(names: tuple[str, ...]) -> list[str]:
    return [", ".join(names)] if names else []


@pytest.mark.parametrize("case", CASES, ids=[case.check.identifier for case in CASES])
def test_finding_is_in_the_broken_manifests_only(case: Case) -> None:
    found = lines(linted(*case.broken))
    assert {each for each, _ in found} == {each.identifier for each in (case.check, *case.others)}
    assert any(line.startswith(case.finding) for name, line in found if name == case.check.identifier), found
    assert lines(linted(*case.correct)) == []


def test_every_check_has_a_case_and_documentation() -> None:
    assert [case.check for case in CASES] == list(Check)
    anchors = re.findall(r"^### .*\{#([a-z-]+)\}$", DOCUMENTATION.read_text(), re.MULTILINE)
    assert anchors == [check.identifier for check in Check]
