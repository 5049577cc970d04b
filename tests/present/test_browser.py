"""The page in a browser: its rows, its requests, and its log entries."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knft.interpret.compare.report import Report
from knft.present import html
from tests.present import example_report
from tests.present.browser import Browser, browser
from tests.present.hostile_report import HOSTILE_TEXTS, hostile_report

_ROWS = """Array.from(document.querySelectorAll('tbody.row')).filter((row) => row.checkVisibility()).map((row) => [
  row.dataset.cause,
  ...Array.from(row.rows[0].cells).map((cell) => cell.innerText.trim()),
])"""
_NO_SERVICE = "addresses of no Service"
_PROBE_URL = "http://127.0.0.1:9/probe.png"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as instance:
        yield instance


@pytest.fixture
def page(tmp_path: Path, chromium: Browser) -> Any:
    """Open the page of a report; return its URL without a fragment."""

    def open_report(report: Report, fragment: str = "") -> str:
        path = tmp_path / "report.html"
        path.write_text(html(report))
        chromium.open("about:blank")
        chromium.open(path.as_uri() + fragment)
        return path.as_uri()

    return open_report


def expected_rows(report: Report) -> list[list[str]]:
    """Return the cells of the rows for differences and undecided packets."""
    rows = []
    for family in report.families:
        for group in family.groups:
            if group.reason is None:
                seen = [group.left_outcome, group.right_outcome] if group.cause != "undecided" else []
                name = group.service or _NO_SERVICE
                rows.append([group.cause, name, family.family, *seen, str(group.classes)])
    return sorted(rows)


def test_page_shows_all_rows_and_requests_nothing_else(page: Any, chromium: Browser) -> None:
    report = example_report.realistic()

    url = page(report)

    assert sorted(chromium.run(_ROWS)) == expected_rows(report)
    assert chromium.run("document.getElementById('shown').value") == "8 rows"
    assert chromium.requests == [url]
    assert chromium.log_entries == []


@pytest.mark.parametrize("report_name", ["equal", "expected", "undecided"])
def test_pages_of_other_reports_make_no_other_requests(report_name: str, page: Any, chromium: Browser) -> None:
    report = getattr(example_report, report_name)()

    url = page(report)

    assert sorted(chromium.run(_ROWS)) == expected_rows(report)
    assert chromium.requests == [url]
    assert chromium.log_entries == []


@pytest.mark.parametrize(
    ("fragment", "services"),
    [
        ("#cause=affinity", {"auth/keycloak:http"}),
        ("#service=shop/checkout:http&family=IPv6", {"shop/checkout:http"}),
        ("#text=GRPC", {"shop/cart:grpc"}),
        ("#text=198.51.100", {_NO_SERVICE}),
        ("#text=rejected+fd00:96::e07", {"shop/checkout:http"}),
        ("#cause=undecided", {"data/postgres:sql"}),
        ("#service=gone/away", set()),
    ],
)
def test_url_fragment_filters_rows(fragment: str, services: set[str], page: Any, chromium: Browser) -> None:
    page(example_report.realistic(), fragment)

    assert {row[1] for row in chromium.run(_ROWS)} == services
    headings = chromium.run("Array.from(document.querySelectorAll('section.cause:not([hidden])')).length")
    assert headings == len(services)


def test_typed_text_filters_rows_and_is_written_to_the_fragment(page: Any, chromium: Browser) -> None:
    page(example_report.realistic())

    chromium.run("document.getElementById('text').focus()")
    chromium.send("Input.insertText", text="metrics")
    chromium.run("new Promise((resolve) => setTimeout(resolve, 50))")

    assert [row[1] for row in chromium.run(_ROWS)] == ["shop/metrics"]
    assert chromium.run("location.hash") == "#text=metrics"
    chromium.run("document.getElementById('clear').click()")
    assert len(chromium.run(_ROWS)) == 8


def test_expand_opens_the_rules_of_visible_rows(page: Any, chromium: Browser) -> None:
    page(example_report.realistic(), "#cause=endpoints")

    chromium.run("document.getElementById('expand').click()")

    assert chromium.run("document.querySelectorAll('tbody.row details[open]').length") == 1
    seen = chromium.run("document.querySelector('details[open]').innerText")
    assert "KUBE-SEP-XBBZ4K3Z4RVY4WRO" in seen
    assert "ip knft service-endpoints-check" in seen


def test_without_scripts_all_rows_are_visible(page: Any, chromium: Browser) -> None:
    report = example_report.realistic()
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page(report)

        assert sorted(chromium.run(_ROWS)) == expected_rows(report)
        assert chromium.run("document.getElementById('filters').checkVisibility()") is False
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)


def test_untrusted_text_runs_no_script_and_requests_nothing(page: Any, chromium: Browser) -> None:
    url = page(hostile_report())

    assert len(chromium.run(_ROWS)) == 2 * len(HOSTILE_TEXTS)
    assert chromium.run("document.title") == "knft diff: Clients would see a difference at 12 Services"
    assert chromium.run("document.scripts.length + document.images.length") == 1
    assert chromium.requests == [url]
    assert chromium.log_entries == []


def test_content_security_policy_blocks_a_request(tmp_path: Path, chromium: Browser) -> None:
    """The browser records every request that the page attempts, and whether the policy blocks it."""
    with_policy = html(example_report.equal()).replace("</main>", f'<img src="{_PROBE_URL}"></main>')
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", with_policy)

    for text, blocked in ((with_policy, [_PROBE_URL]), (without_policy, [])):
        path = tmp_path / "report.html"
        path.write_text(text)
        chromium.open("about:blank")
        chromium.open(path.as_uri())

        assert chromium.requests == [path.as_uri(), _PROBE_URL]
        assert chromium.blocked == blocked
        assert chromium.log_entries


def test_page_with_5000_rows_is_filtered(page: Any, chromium: Browser) -> None:
    page(example_report.large(5000), "#text=service-4999")

    assert [row[1] for row in chromium.run(_ROWS)] == ["team-39/service-4999:http"]


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_page_does_not_scroll_sideways(width: int, page: Any, chromium: Browser) -> None:
    chromium.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    try:
        for report in (example_report.realistic(), hostile_report()):
            page(report)
            chromium.run("document.querySelectorAll('details').forEach((item) => { item.open = true; })")

            assert chromium.run("document.documentElement.scrollWidth") <= width
    finally:
        chromium.send("Emulation.clearDeviceMetricsOverride")
