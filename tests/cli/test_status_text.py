"""The text of ``knft status`` and ``knft history`` at 80 and 200 columns, and piped; and the selection of changes."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from knft.cli.history import Selection, endpoint_name, selector, service_name, since_time
from knft.cli.history_text import format_history
from knft.cli.status_text import format_status
from knft.control.messages import (
    AuditStatus,
    Cause,
    ConntrackStatus,
    EndpointChange,
    FamilyStatus,
    FirstSync,
    History,
    NamedProblems,
    SourceStatus,
    Status,
    TableChange,
)
from knft.errors import UsageError

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = {"80": 80, "200": 200, "piped": None}
NOON = 1_795_521_600.0

HEALTHY = FamilyStatus(
    state="in force",
    node_address="192.0.2.11",
    last_sync=NOON - 3.2,
    last_sync_age=3.2,
    last_sync_seconds=0.0014,
    last_sync_is_full=False,
    pending_seconds=None,
    sync_error="",
    services_pending=0,
    endpoint_changes_pending=0,
    service_ports=12,
    endpoints=1,
    elements=120,
    quarantined=NamedProblems(),
    left_out=NamedProblems(),
    contested=NamedProblems(),
    removal_error="",
    repair_error="",
    foreign_changes=0,
    last_foreign_change="",
    last_foreign_change_age=None,
    check_delay=0.0,
    audit=AuditStatus(723.0),
)
TROUBLED = structs.replace(
    HEALTHY,
    state="failing",
    node_address="2001:db8:1::11",
    last_sync_is_full=True,
    pending_seconds=62.5,
    sync_error="the kernel refused the transaction: Cannot allocate memory",
    services_pending=1,
    endpoint_changes_pending=3,
    elements=None,
    quarantined=NamedProblems(1, {"shop/web:http": "Could not process rule: Cannot allocate memory"}),
    left_out=NamedProblems(1, {"shop/huge": "it has 200000 endpoints, more than 150000"}),
    contested=NamedProblems(
        22,
        {"shop/b": "Service port shop/b does not get frontend 203.0.113.5 80/TCP, which Service port shop/a owns"},
    ),
    removal_error="Device or resource busy",
    repair_error="the table differs from the expected rules in 2 positions: services, cluster-ips",
    foreign_changes=3,
    last_foreign_change="nft (pid 4711) changed the table: services, evil\x1b[31m",
    last_foreign_change_age=0.25,
    check_delay=4.0,
    audit=AuditStatus(30.0, error="the worker process died"),
)
READY = Status(
    knft="0.1.0",
    python="3.11.2",
    kernel="6.18.44",
    mode="nftables",
    node="node-1",
    pid=4242,
    started=NOON - 7385.0,
    uptime=7385.0,
    problem="",
    source=SourceStatus("API server", "https://192.0.2.10:6443"),
    services=11,
    families={"IPv4": HEALTHY, "IPv6": structs.replace(HEALTHY, node_address="2001:db8:1::11", audit=None)},
    conntrack=ConntrackStatus(26_214, 262_144),
)
AWAY = structs.replace(
    READY,
    problem="a change of IPv6 is not in force",
    source=SourceStatus(
        "API server",
        "https://192.0.2.10:6443",
        ("cannot watch services, endpointslices, servicecidrs, nodes: 192.0.2.10:6443: Connection refused",),
    ),
    families={"IPv6": TROUBLED, "IPv4": HEALTHY},
    conntrack=ConntrackStatus(None, None),
)
STATES: dict[str, Status] = {"ready": READY, "troubled": AWAY}

CHANGE = EndpointChange(
    service="shop/web",
    port="http",
    protocol="TCP",
    family="IPv4",
    gained=("10.244.1.21:8080",),
    lost=("10.244.1.20:8080",),
    not_listed=0,
    cause=Cause(
        "EndpointSlice",
        "shop/web-abc12",
        "48213",
        is_deleted=False,
        triggered="2026-11-24T12:00:00Z",
        received=NOON + 0.105,
    ),
    in_force=NOON + 0.1232,
    seconds=0.0182,
)
SERVICE_DELETED = structs.replace(
    CHANGE,
    family="IPv6",
    gained=(),
    lost=("[fd00::20]:8080",),
    not_listed=300,
    cause=Cause("Service", "shop/web", "", is_deleted=True, triggered="", received=NOON + 60),
    in_force=NOON + 61.5,
    seconds=1.5,
)
HISTORY = History(
    (
        FirstSync("IPv4", 12, 120, 0, NOON - 7384),
        structs.replace(
            CHANGE, service="default/dns", port="", gained=("10.244.1.9:53",), lost=(), cause=None, seconds=None
        ),
        CHANGE,
        TableChange("IPv4", "nft (pid 4711) changed the table: services", NOON + 30, NOON + 30.05),
        TableChange("IPv6", "an audit found 3 elements or chains changed", NOON + 40),
        SERVICE_DELETED,
    ),
    dropped=7,
)


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("state", STATES)
def test_text_of_a_status(state: str, width: str) -> None:
    text = format_status(STATES[state], WIDTHS[width])
    assert text == golden(f"status-{state}-{width}")
    assert "\x1b" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_a_history(width: str) -> None:
    assert format_history(HISTORY, "", WIDTHS[width]) == golden(f"history-{width}")


@pytest.mark.parametrize("width", WIDTHS)
def test_history_of_an_endpoint_begins_with_its_conclusion(width: str) -> None:
    found = History((CHANGE,))
    assert format_history(found, "10.244.1.20", WIDTHS[width]) == golden(f"history-endpoint-{width}")


@pytest.mark.parametrize("width", [80, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    texts = [format_status(status, width) for status in STATES.values()]
    texts += [format_history(HISTORY, "", width), format_history(HISTORY, "10.244.1.20", width)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_empty_history() -> None:
    assert format_history(History(()), "", None) == "no such change since the start of knft\n"
    assert format_history(History((), dropped=1), "10.0.0.1", None) == (
        "1 older change dropped: knft keeps the last ones in bounded memory\nno such change of endpoint 10.0.0.1\n"
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, "first dns change table table deleted"),
        ({"service": "shop/web"}, "first change table table deleted"),
        ({"service": "shop/we"}, "first table table"),
        ({"endpoint": "10.244.1.20"}, "change"),
        ({"endpoint": "10.244.1.21:8080"}, "change"),
        ({"endpoint": "10.244.1.2"}, ""),
        ({"endpoint": "10.244.1.20:80"}, ""),
        ({"endpoint": "fd00::20"}, "deleted"),
        ({"endpoint": "[fd00::20]:8080"}, "deleted"),
        ({"since": NOON + 35}, "table deleted"),
        ({"since": NOON + 35, "service": "default/dns"}, "table"),
    ],
    ids=str,
)
def test_selection(selection: dict[str, Any], expected: str) -> None:
    names = dict(zip(map(id, HISTORY.entries), ("first", "dns", "change", "table", "table", "deleted"), strict=True))
    selected = filter(selector(Selection(**selection)), HISTORY.entries)
    assert " ".join(names[id(entry)] for entry in selected) == expected


@pytest.mark.parametrize(("text", "expected"), [("web", "default/web"), ("shop/web", "shop/web")])
def test_service_names(text: str, expected: str) -> None:
    assert service_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.244.1.20", "10.244.1.20"),
        ("10.244.1.20:80", "10.244.1.20:80"),
        ("FD00:0::20", "fd00::20"),
        ("[fd00::20]:80", "[fd00::20]:80"),
    ],
)
def test_endpoint_names(text: str, expected: str) -> None:
    assert endpoint_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", NOON - 300),
        ("1h0m1s", NOON - 3601),
        ("2026-11-24T12:00:00Z", NOON),
        ("2026-11-24T13:00:00+01:00", NOON),
        ("2026-11-24T12:00:00", NOON),
    ],
)
def test_since(text: str, expected: float) -> None:
    assert since_time(text, NOON) == expected


def test_invalid_selections_are_usage_errors() -> None:
    for text in ("", "/web", "shop/", "a/b/c"):
        with pytest.raises(UsageError, match="is not a Service"):
            service_name(text)
    for text in ("10.244.1", "10.244.1.20:http", "web:80", ":80"):
        with pytest.raises(UsageError, match="--endpoint"):
            endpoint_name(text)
    with pytest.raises(UsageError, match="--since"):
        since_time("yesterday", NOON)
