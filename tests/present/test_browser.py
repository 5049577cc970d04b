"""The page in a browser: its rows, its requests, and its log entries."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from knft.interpret.compare.report import Report
from knft.present import html
from knft.present.page import MAX_AFFECTED
from tests.present import example_report
from tests.present.browser import Browser, browser
from tests.present.hostile_report import HOSTILE_TEXTS, hostile_report

_ROWS = """Array.from(document.querySelectorAll('tbody.row')).filter((row) => row.checkVisibility()).map((row) => [
  row.dataset.cause,
  ...Array.from(row.rows[0].cells).map((cell) =>
    cell.innerText.trim().replace(/\\nno longer reached$/, "").replaceAll("\\n", " ")),
])"""
_CONTRASTS = """(() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const luminance = (colour) => numbers(colour).slice(0, 3)
    .map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const background = (element) => {
    for (let item = element; item; item = item.parentElement) {
      const colour = numbers(getComputedStyle(item).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return getComputedStyle(item).backgroundColor;
      if (colour[3] !== 0) throw new Error("translucent background");
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, option")) continue;
    const style = getComputedStyle(element);
    const [low, high] = [luminance(style.color), luminance(background(element))].sort((one, other) => one - other);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((high + 0.05) / (low + 0.05) < (isLarge ? 3 : 4.5)) {
      found[walker.currentNode.data.trim().slice(0, 40)] = ((high + 0.05) / (low + 0.05)).toFixed(2);
    }
  }
  return found;
})()"""
"""The texts whose contrast is less than WCAG 2.2 AA requires, with the contrast."""
_OPEN_ALL = "document.querySelectorAll('details').forEach((item) => { item.open = true; })"
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
        ("#text=198.51.100.0/24", {_NO_SERVICE}),
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


@contextmanager
def emulated(
    chromium: Browser, *, width: int = 1400, height: int = 800, scheme: str = "light", media: str = "screen"
) -> Iterator[None]:
    """Give the browser a window size, a colour scheme and a medium."""
    chromium.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.send("Emulation.setEmulatedMedia", media=media, features=features)
    try:
        yield
    finally:
        chromium.send("Emulation.clearDeviceMetricsOverride")
        chromium.send("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("width", [360, 390, 800, 1600])
def test_page_does_not_scroll_sideways(width: int, page: Any, chromium: Browser) -> None:
    with emulated(chromium, width=width):
        reports = (example_report.realistic(), example_report.undecided(), example_report.crowded(9), hostile_report())
        for report in reports:
            page(report)
            chromium.run(_OPEN_ALL)

            assert chromium.run("document.documentElement.scrollWidth") <= width
            assert chromium.run(
                "Array.from(document.querySelectorAll('main *, header *, footer *')).filter((item) => "
                "item.checkVisibility() && item.tagName !== 'OPTION' && "
                "item.getBoundingClientRect().right > innerWidth).map((item) => item.outerHTML.slice(0, 80))"
            ) == []  # fmt: skip


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["realistic", "equal", "expected", "losing", "undecided", "crowded"])
def test_text_has_the_contrast_of_wcag_aa(name: str, scheme: str, width: int, page: Any, chromium: Browser) -> None:
    with emulated(chromium, width=width, scheme=scheme):
        page(example_report.crowded(30) if name == "crowded" else getattr(example_report, name)())
        chromium.run(_OPEN_ALL)

        assert chromium.run("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 22, 29)"
        )
        assert chromium.run(_CONTRASTS) == {}


def test_contrast_of_the_test_finds_pale_text(page: Any, chromium: Browser) -> None:
    page(example_report.equal())
    chromium.run("document.querySelector('h1').attributeStyleMap.set('color', '#ccc')")

    assert list(chromium.run(_CONTRASTS)) == ["Packets have the same outcome on both si"]


def test_tab_key_visits_all_controls_which_are_outlined_and_not_covered(page: Any, chromium: Browser) -> None:
    with emulated(chromium, height=500):
        page(example_report.realistic())
        visited = []
        controls = chromium.run("document.querySelectorAll('input, select, button:not([hidden]), summary').length")
        for modifiers, steps in ((0, controls), (8, controls - 1)):  # forwards, and backwards with the shift key
            for _ in range(steps):
                for event in ("rawKeyDown", "keyUp"):
                    chromium.send("Input.dispatchKeyEvent", type=event, key="Tab", code="Tab",
                                  windowsVirtualKeyCode=9, modifiers=modifiers)  # fmt: skip
                visited.append(
                    chromium.run("""(() => {
                      const item = document.activeElement, box = item.getBoundingClientRect();
                      const top = document.elementFromPoint(box.left + 8, box.top + box.height / 2);
                      return [item.tagName, getComputedStyle(item).outlineStyle, item.contains(top)];
                    })()""")
                )

        assert {(style, is_visible) for _, style, is_visible in visited} == {("solid", True)}
        assert [tag for tag, *_ in visited[:controls]].count("SUMMARY") == chromium.run(
            "document.querySelectorAll('summary').length"
        )


def test_headings_skip_no_level(page: Any, chromium: Browser) -> None:
    page(example_report.realistic())

    levels = chromium.run(
        "Array.from(document.querySelectorAll('h1, h2, h3, h4, h5, h6')).map((item) => +item.tagName[1])"
    )
    assert levels[:3] == [1, 2, 3]
    assert all(level <= before + 1 for before, level in pairwise(levels))


def test_differences_are_on_the_first_screen(page: Any, chromium: Browser) -> None:
    with emulated(chromium, height=900):
        page(example_report.realistic())

        assert chromium.run("document.querySelector('tbody.row').getBoundingClientRect().bottom") < 900


def test_anchor_of_a_section_is_not_below_the_filters(page: Any, chromium: Browser) -> None:
    with emulated(chromium, height=400):
        page(example_report.realistic())
        chromium.run("document.getElementById('expected').scrollIntoView()")

        bottom = chromium.run("document.getElementById('filters').getBoundingClientRect().bottom")
        assert chromium.run("document.querySelector('#expected h2').getBoundingClientRect().top") >= bottom > 0


def test_long_list_of_services_is_opened_on_request(page: Any, chromium: Browser) -> None:
    page(example_report.crowded(90))

    visible = (
        "Array.from(document.querySelectorAll('.affected.bad span:not(.ns)')).filter((item) => item.checkVisibility())"
    )
    assert chromium.run(f"{visible}.length") == MAX_AFFECTED
    chromium.run("document.querySelector('.affected.bad summary').click()")
    assert chromium.run(f"{visible}.length") == 30


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_print_is_light_fits_the_paper_and_omits_the_filters(scheme: str, page: Any, chromium: Browser) -> None:
    with emulated(chromium, width=680, scheme=scheme, media="print"):  # A4 with margins
        page(example_report.crowded(30))

        assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert chromium.run("document.getElementById('filters').checkVisibility()") is False
        assert chromium.run("document.documentElement.scrollWidth") <= 680
        assert chromium.run(_CONTRASTS) == {}
