"""The colours of status, lint, preflight and explain: only by request, and the text is the same without them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from knft.cli.explain_text import format_explanation
from knft.cli.lint_text import format_report
from knft.cli.preflight_text import format_preflight
from knft.cli.status_text import AuditConclusion, format_status
from knft.preflight.checks import check
from knft.preflight.facts import Facts
from tests.cli.example_status import READY, STATES
from tests.support.lint_reports import BROKEN_CLUSTERS, report_of
from tests.support.node_facts import ready, with_findings
from tests.support.shop import explain_in, source, write_manifests

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
RED, YELLOW, GREEN, BOLD = (f"\x1b[{codes}m" for codes in ("1;31", "1;33", "1;32", "1"))


def _plain(text: str) -> str:
    return _ESCAPES.sub("", text)


@pytest.mark.parametrize(("state", "colour"), [("ready", GREEN), ("unfinished", YELLOW), ("troubled", RED)])
def test_conclusion_of_status(state: str, colour: str) -> None:
    text = format_status(STATES[state], 80, colours=True)

    assert text.startswith(colour)
    assert text.count("\x1b[1;") == text[: text.index("version")].count("\n")
    assert _plain(text) == format_status(STATES[state], 80)


def test_problem_of_a_ready_knft_is_yellow() -> None:
    families = {"IPv4": structs.replace(READY.families["IPv4"], state="failing")}

    assert format_status(structs.replace(READY, families=families), None, colours=True).startswith(YELLOW)


@pytest.mark.parametrize(("is_equal", "colour"), [(True, GREEN), (False, YELLOW)])
def test_conclusion_of_an_audit(colour: str, *, is_equal: bool) -> None:
    audit = AuditConclusion("audit: done", is_equal=is_equal)
    assert format_status(READY, None, audit=audit, colours=True).startswith(f"{colour}audit: done")


@pytest.mark.parametrize(
    ("name", "colour"),
    [("refused-after-the-restore", RED), ("logs-of-node-3-are-missing", YELLOW)],
)
def test_findings_of_lint(name: str, colour: str) -> None:
    report = report_of("-f", str(BROKEN_CLUSTERS / f"{name}.yaml"))
    text = format_report(report, 80, colours=True)

    assert text.startswith(colour)
    assert text.count(f"{RED}problem: ") == report.problems
    assert text.count(f"{YELLOW}warning: ") == report.warnings
    assert _plain(text) == format_report(report, 80)


def test_lint_without_findings_is_green() -> None:
    found = report_of("-f", str(BROKEN_CLUSTERS / "refused-after-the-restore.yaml"))
    report = structs.replace(found, problems=0, warnings=0, findings=())
    assert format_report(report, None, colours=True).startswith(GREEN)


@pytest.mark.parametrize(("facts", "colour"), [(ready, GREEN), (with_findings, RED)])
def test_points_of_preflight(facts: Callable[[], Facts], colour: str) -> None:
    found = check(facts())
    text = format_preflight(found, 80, colours=True)

    assert text.startswith(colour)
    for point in found.points:
        own = {"problem": RED, "ok": GREEN}.get(point.state, YELLOW)
        assert f"{own}{point.name}: {point.state}\x1b[0m\n" in text
    assert "\n  \x1b[32mok\x1b[0m           " in text
    assert _plain(text) == format_preflight(found, 80)


def test_points_of_preflight_with_problems_come_first() -> None:
    text = format_preflight(check(with_findings()), None)

    states = re.findall(r"^[\w -]+: (problem|warning|not checked|ok)$", text, re.MULTILINE)
    assert states == sorted(states, key=["problem", "warning", "not checked", "ok"].index)
    assert len(states) == len(check(with_findings()).points)


def test_headings_of_explain(tmp_path: Path) -> None:
    found = explain_in(source(write_manifests(tmp_path)), "shop/frontend")
    text = format_explanation(found, 80, colours=True)

    assert text.startswith(BOLD)
    assert text.count(f"{BOLD}Service port ") == 2
    assert _plain(text) == format_explanation(found, 80)
