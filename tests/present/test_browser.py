"""What a browser makes of the page: its rows, what it asks for, and what it complains of."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knft.interpret.compare.report import Report
from knft.present import html
from tests.present import example_report
from tests.present.browser import Browser, browser
from tests.present.hostile import HARM, hostile

_ROWS = """Array.from(document.querySelectorAll('tbody.row')).filter((row) => row.checkVisibility()).map((row) => [
  row.dataset.cause,
  ...Array.from(row.rows[0].cells).map((cell) => cell.innerText.trim()),
])"""
_NOBODYS = "no Service\N{RIGHT SINGLE QUOTATION MARK}s packets"
_PROBE = "http://127.0.0.1:9/probe.png"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(tmp_path: Path, chromium: Browser) -> Any:
    """Open a report's page; return its address without a fragment."""

    def opened(report: Report, fragment: str = "") -> str:
        path = tmp_path / "report.html"
        path.write_text(html(report))
        chromium.open("about:blank")
        chromium.open(path.as_uri() + fragment)
        return path.as_uri()

    return opened


def expected_rows(report: Report) -> list[list[str]]:
    """Return what the table says of the differences and of what is undecided."""
    rows = []
    for family in report.families:
        for group in family.groups:
            if group.intent is None:
                seen = [group.left, group.right] if group.cause != "undecided" else []
                name = group.service or _NOBODYS
                rows.append([group.cause, name, family.family, *seen, str(group.classes)])
    return sorted(rows)


def test_the_rows_are_the_reports_and_nothing_else_is_requested(page: Any, chromium: Browser) -> None:
    report = example_report.realistic()

    url = page(report)

    assert sorted(chromium.run(_ROWS)) == expected_rows(report)
    assert chromium.run("document.getElementById('shown').value") == "8 rows"
    assert chromium.requests == [url]
    assert chromium.complaints == []


@pytest.mark.parametrize("name", ["equal", "intended", "undecided"])
def test_other_endings_open_as_quietly(name: str, page: Any, chromium: Browser) -> None:
    report = getattr(example_report, name)()

    url = page(report)

    assert sorted(chromium.run(_ROWS)) == expected_rows(report)
    assert chromium.requests == [url]
    assert chromium.complaints == []


@pytest.mark.parametrize(
    ("fragment", "services"),
    [
        ("#cause=affinity", {"auth/keycloak:http"}),
        ("#service=shop/checkout:http&family=IPv6", {"shop/checkout:http"}),
        ("#text=GRPC", {"shop/cart:grpc"}),
        ("#text=198.51.100", {_NOBODYS}),
        ("#text=refused+fd00:96::e07", {"shop/checkout:http"}),
        ("#cause=undecided", {"data/postgres:sql"}),
        ("#service=gone/away", set()),
    ],
)
def test_the_fragment_filters_rows(fragment: str, services: set[str], page: Any, chromium: Browser) -> None:
    page(example_report.realistic(), fragment)

    assert {row[1] for row in chromium.run(_ROWS)} == services
    headings = chromium.run("Array.from(document.querySelectorAll('section.cause:not([hidden])')).length")
    assert headings == len(services)


def test_typing_filters_and_is_kept_in_the_fragment(page: Any, chromium: Browser) -> None:
    page(example_report.realistic())

    chromium.run("document.getElementById('text').focus()")
    chromium.send("Input.insertText", text="metrics")
    chromium.run("new Promise((resolve) => setTimeout(resolve, 50))")

    assert [row[1] for row in chromium.run(_ROWS)] == ["shop/metrics"]
    assert chromium.run("location.hash") == "#text=metrics"
    chromium.run("document.getElementById('clear').click()")
    assert len(chromium.run(_ROWS)) == 8


def test_expand_opens_the_rules_of_the_rows_that_are_seen(page: Any, chromium: Browser) -> None:
    page(example_report.realistic(), "#cause=endpoints")

    chromium.run("document.getElementById('expand').click()")

    assert chromium.run("document.querySelectorAll('tbody.row details[open]').length") == 1
    seen = chromium.run("document.querySelector('details[open]').innerText")
    assert "KUBE-SEP-XBBZ4K3Z4RVY4WRO" in seen
    assert "ip knft service-endpoints-check" in seen


def test_without_scripts_every_row_can_be_read(page: Any, chromium: Browser) -> None:
    report = example_report.realistic()
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page(report)

        assert sorted(chromium.run(_ROWS)) == expected_rows(report)
        assert chromium.run("document.getElementById('filters').checkVisibility()") is False
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)


def test_others_words_do_nothing(page: Any, chromium: Browser) -> None:
    url = page(hostile())

    assert len(chromium.run(_ROWS)) == 2 * len(HARM)
    assert chromium.run("document.title") == "knft diff: Clients would see a difference at 12 Services"
    assert chromium.run("document.scripts.length + document.images.length") == 1
    assert chromium.requests == [url]
    assert chromium.complaints == []


def test_the_policy_is_what_stops_a_request(tmp_path: Path, chromium: Browser) -> None:
    """The log of requests has whatever a page tries to ask for; the policy keeps it from asking."""
    strict = html(example_report.equal()).replace("</main>", f'<img src="{_PROBE}"></main>')
    lax = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", strict)

    for text, stopped in ((strict, [_PROBE]), (lax, [])):
        path = tmp_path / "report.html"
        path.write_text(text)
        chromium.open("about:blank")
        chromium.open(path.as_uri())

        assert chromium.requests == [path.as_uri(), _PROBE]
        assert chromium.stopped == stopped
        assert chromium.complaints


def test_a_page_with_5000_rows_is_filtered(page: Any, chromium: Browser) -> None:
    page(example_report.large(5000), "#text=service-4999")

    assert [row[1] for row in chromium.run(_ROWS)] == ["team-39/service-4999:http"]


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_no_width_makes_it_scroll_sideways(width: int, page: Any, chromium: Browser) -> None:
    chromium.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    try:
        for report in (example_report.realistic(), hostile()):
            page(report)
            chromium.run("document.querySelectorAll('details').forEach((item) => { item.open = true; })")

            assert chromium.run("document.documentElement.scrollWidth") <= width
    finally:
        chromium.send("Emulation.clearDeviceMetricsOverride")
