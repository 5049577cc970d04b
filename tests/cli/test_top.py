"""The rates of ``knft top``, its rows and their order, and its keys."""

from pathlib import Path

import pytest
from msgspec import structs

from knft.cli.top import Screen, press
from knft.cli.top_text import NOT_COUNTING, Level, Row, Selection, Top, format_top, rates, selected, selected_rows
from knft.control.messages import Counters, FrontendCounters, SyncTotals

GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}


def _frontend(service: str, address: str, new: int, refused: int = 0, port: str = "http") -> FrontendCounters:
    family = "IPv6" if ":" in address else "IPv4"
    return FrontendCounters("shop", service, port, "TCP", address, 80 if address else 30080, family, new, refused)


BEFORE = Counters(
    100.0,
    99.0,
    5.0,
    is_counting=True,
    syncs={"IPv4": SyncTotals(10, 0, 1.0, 5, 2.0), "IPv6": SyncTotals()},
    frontends=(_frontend("web", "10.96.0.1", 100, 10), _frontend("db", "10.96.0.2", 500, port="")),
)
AFTER = Counters(
    105.0,
    104.0,
    5.0,
    is_counting=True,
    syncs={"IPv4": SyncTotals(20, 5, 1.5, 9, 2.4), "IPv6": SyncTotals()},
    frontends=(
        _frontend("web", "10.96.0.1", 150, 20),
        _frontend("web", "fd00:10:96::1", 25),
        _frontend("web", "", 5),
        _frontend("db", "10.96.0.2", 10, port=""),
    ),
)
TOP = rates(BEFORE, AFTER)


def test_rates_are_differences_by_the_time_between_the_readings() -> None:
    """A counter that is smaller than before began again from 0."""
    assert TOP.seconds == 5.0
    assert TOP.services == (Row("shop/web:http", "", 16.0, 2.0, 180), Row("shop/db", "", 2.0, 0.0, 10))
    assert TOP.frontends[:3] == (
        Row("shop/web:http", "10.96.0.1:80/tcp", 10.0, 2.0, 150),
        Row("shop/web:http", "[fd00:10:96::1]:80/tcp", 5.0, 0.0, 25),
        Row("shop/web:http", "NodePort IPv4:30080/tcp", 1.0, 0.0, 5),
    )


def test_text() -> None:
    assert format_top(TOP, Selection()) == (
        "FAMILY  SYNCS/S  FAILED/S  DURATION   LATENCY\n"
        "IPv4        2.0       1.0   50.0 ms  100.0 ms\n"
        "IPv6        0.0       0.0         -         -\n"
        "\n"
        "SERVICE        NEW/S  REFUSED/S  TOTAL\n"
        "shop/web:http   16.0        2.0    180\n"
        "shop/db          2.0        0.0     10\n"
    )
    assert format_top(TOP, Selection("frontend", filter="FD00")).splitlines()[4:] == [
        "SERVICE        FRONTEND                NEW/S  REFUSED/S  TOTAL",
        "shop/web:http  [fd00:10:96::1]:80/tcp    5.0        0.0     25",
    ]
    assert format_top(TOP, Selection(), width=10, height=2) == "FAMILY  SY\nIPv4\n"
    assert format_top(TOP, Selection("frontend"), width=10).splitlines()[5] == "shop/w…:ht"
    assert format_top(TOP, Selection(filter="no such")).endswith("\nno connections to a Service with 'no such'\n")


LONG = "recommendation-engine-for-returning-customers-with-long-names"


LONG_NAMES = structs.replace(
    AFTER,
    frontends=(
        *AFTER.frontends,
        *(
            structs.replace(
                _frontend(f"{LONG}-{number}", f"fd00:10:96:1234:5678:9abc:def0:{number}", 9_999_999), family="IPv6"
            )
            for number in (1, 2)
        ),
    ),
)
"""Counters of Services with long names and addresses."""


def long_names() -> Top:
    """Return the rates of ``LONG_NAMES``."""
    return rates(BEFORE, LONG_NAMES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("level", ["service", "frontend"])
def test_text_is_golden(level: Level, width: str) -> None:
    """``python -m tests.cli.write_golden`` writes the files, to be reviewed."""
    text = format_top(long_names(), Selection(level), WIDTHS[width])
    assert text == (GOLDEN / f"top-{level}-{width}.txt").read_text()
    assert all(line.rstrip().endswith(("TOTAL", "99", "10", "5", "25", "150", "180")) for line in text.splitlines()[4:])


def test_first_line_names_the_node() -> None:
    for counters in (AFTER, structs.replace(AFTER, is_counting=False, read=None)):
        found = rates(BEFORE, structs.replace(counters, node="node-1"))
        assert format_top(found, Selection()).splitlines()[0] == "node node-1"


@pytest.mark.parametrize(
    ("height", "last"),
    [(20, "shop/db"), (7, "shop/db"), (6, "2 more rows below"), (5, "SERVICE"), (3, "IPv6"), (0, "")],
)
def test_rows_without_room_are_counted(height: int, last: str) -> None:
    lines = format_top(TOP, Selection(), 80, height).splitlines()
    assert len(lines) <= height
    assert "".join(lines[-1:]).startswith(last)


def test_text_without_connections() -> None:
    """Without --service-counters there are syncs alone."""
    other = structs.replace(AFTER, is_counting=False, read=None, frontends=())
    assert format_top(rates(structs.replace(BEFORE, read=None), other), Selection()).endswith(f"\n\n{NOT_COUNTING}\n")
    assert format_top(rates(BEFORE, BEFORE), Selection()).endswith("\n\nno connections yet\n")


def test_order_of_rows() -> None:
    names = {
        sorting: [row.service for row in selected(TOP, Selection(sorting=sorting))] for sorting in ("name", "total")
    }
    assert names == {"name": ["shop/db", "shop/web:http"], "total": ["shop/web:http", "shop/db"]}
    by_refused = selected(TOP, Selection("frontend", "refused"))
    assert [row.refused for row in by_refused] == [2.0, 0.0, 0.0, 0.0]
    assert [row.service for row in by_refused][1:] == ["shop/db", "shop/web:http", "shop/web:http"]


def test_json_output_has_the_selected_rows_of_services_and_frontends() -> None:
    found = selected_rows(TOP, Selection("frontend", "name", filter="shop/db"))
    assert [(row.service, row.frontend) for row in found.services] == [("shop/db", "")]
    assert [row.frontend for row in found.frontends] == ["10.96.0.2:80/tcp"]
    assert selected_rows(TOP, Selection(sorting="name")).services == TOP.services[::-1]


def test_names_of_other_programs_cannot_control_the_terminal() -> None:
    frontends = (structs.replace(_frontend("web", "10.96.0.1", 5), service="web\x1b[2J"),)
    assert "\x1b" not in format_top(rates(BEFORE, structs.replace(AFTER, frontends=frontends)), Selection())


def _press(keys: str) -> Screen:
    screen = Screen(Selection())
    for key in keys:
        screen = press(screen, key)
    return screen


def test_keys() -> None:
    assert _press("s").selection.sorting == "refused"
    assert _press("ssss").selection == Selection()
    assert (_press("f").selection.level, _press("ff").selection.level) == ("frontend", "service")
    assert _press("/sq") == Screen(Selection(filter="sq"), is_typing=True)
    assert _press("/web\x7f\x7f\x01\ns") == Screen(Selection(sorting="refused", filter="w"))
    assert _press("/web\n\x1b") == _press("/web\x1b") == _press("x") == Screen(Selection())
    assert _press("q").is_done
