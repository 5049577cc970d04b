"""The text of ``knft diff --watch``: the first result is complete, each later one names what has changed."""

import pytest
from msgspec.structs import replace

from knft.cli.diff_watch import format_result, result_lines
from knft.comparison.watch import ReportedDifference, WatchResult
from tests.cli.example_status import WIDTHS, golden
from tests.support.terminal import without_colours

WEB = ReportedDifference("IPv4", "endpoints", "shop/web:http", "10.244.0.1 gets nothing")
DNS = ReportedDifference("IPv4", "verdict", "kube-system/dns:dns", "rejected, or delivered")
API = ReportedDifference("IPv6", "verdict", "", "dropped, or not translated")
DIFFERENT = WatchResult("different", "iptables", "knft", (WEB, DNS), warnings=("a table is missing",))
EXPECTED = "except for expected differences (3 kinds of packets)"
FIRST = [
    "12:00 different: some packets have different outcomes in iptables and knft",
    "  IPv4 shop/web:http, endpoints: 10.244.0.1 gets nothing",
    "  IPv4 kube-system/dns:dns, verdict: rejected, or delivered",
    "  warning: a table is missing",
]


def test_first_result_is_complete() -> None:
    assert list(result_lines("12:00", DIFFERENT, None)) == FIRST


def test_result_of_other_sides_is_complete() -> None:
    assert list(result_lines("12:00", DIFFERENT, replace(DIFFERENT, left_name="IPVS"))) == FIRST


def test_later_result_has_only_changes() -> None:
    web = replace(WEB, description="10.244.0.2 gets half")
    result = replace(DIFFERENT, differences=(web, API), warnings=("a table is missing", "a set is missing"))
    assert list(result_lines("12:01", result, DIFFERENT)) == [
        "12:01 different: 1 new, 1 gone, 1 changed; 2 in all",
        "  ~ IPv4 shop/web:http, endpoints: 10.244.0.2 gets half (before: 10.244.0.1 gets nothing)",
        "  + IPv6 addresses of no Service, verdict: dropped, or not translated",
        "  - IPv4 kube-system/dns:dns, verdict: rejected, or delivered",
        "  warning: a set is missing",
    ]


def test_several_differences_of_one_place_are_all_named() -> None:
    """Differences of one Service, family and cause are told apart by their descriptions."""
    pair = (WEB, replace(WEB, description="b"), replace(WEB, description="c"))
    result, previous = replace(DIFFERENT, differences=()), replace(DIFFERENT, differences=pair)
    changes = [line.split(": ")[-1] for line in list(result_lines("12:01", result, previous))[1:]]
    assert sorted(changes) == ["10.244.0.1 gets nothing", "b", "c"]


def test_equal_result_names_what_is_gone() -> None:
    assert list(result_lines("12:02", replace(DIFFERENT, state="equal", differences=(), expected=3), DIFFERENT)) == [
        f"12:02 equal: packets have the same outcome in iptables and knft, {EXPECTED}",
        "  - IPv4 shop/web:http, endpoints: 10.244.0.1 gets nothing",
        "  - IPv4 kube-system/dns:dns, verdict: rejected, or delivered",
    ]


def watched_change(width: int | None) -> str:
    """Return the first result, and the next one, in which a pod has been replaced."""
    former = "reaches 10.244.1.11:8080, 10.244.2.11:8080, 10.244.2.12:8080 (1/3 each)"
    found = [
        ReportedDifference("IPv4", "endpoints", "shop/frontend:http", f"{former} → {former.replace('12:', f'{pod}:')}")
        for pod in (13, 14)
    ]
    first = WatchResult(
        "different",
        "kube-proxy on this machine (iptables-nft, ip6tables-nft)",
        "knft on this machine",
        (found[0],),
        warnings=("no --cluster-cidr: packets from pods count as packets from outside",),
    )
    second = replace(first, differences=(found[1],))
    before = format_result("2026-11-24T12:00:00+00:00", first, None, width)
    return before + format_result("2026-11-24T12:03:20+00:00", second, first, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_a_change(width: str) -> None:
    assert watched_change(WIDTHS[width]) == golden(f"diff-watch-{width}")


@pytest.mark.parametrize(
    ("state", "codes"), [("equal", "1;32"), ("different", "1;31"), ("nothing", "1;33"), ("unreadable", "1;33")]
)
def test_conclusion_has_a_colour(state: str, codes: str) -> None:
    check_colour(replace(DIFFERENT, state=state, left_name="x" * 60, error="x " * 60), codes)


def test_conclusion_is_yellow_if_clients_lose_something() -> None:
    check_colour(WatchResult("equal", "x" * 60, "knft", losing=("shop/web",)), "1;33")


def test_services_that_clients_lose_are_named_in_each_result() -> None:
    losing = replace(DIFFERENT, losing=("shop/web",))
    for result, previous in ((losing, None), (losing, DIFFERENT), (replace(losing, state="equal"), DIFFERENT)):
        assert "; some clients would no longer reach shop/web" in next(result_lines("12:00", result, previous))


def check_colour(result: WatchResult, codes: str) -> None:
    plain = format_result("12:00", result, None, 80)
    text = format_result("12:00", result, None, 80, colours=True)
    lines = list(result_lines("12:00", result, None))
    assert without_colours(text) == plain
    assert text.count(f"\x1b[{codes}m") == text.count("\x1b[0m") == len(plain.splitlines()) - len(lines) + 1 > 1
