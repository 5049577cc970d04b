"""The text of ``knft status`` and ``knft history`` at 80 and 200 columns, and piped; and the selection of changes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from knft.cli.history import endpoint_name, selector, service_name, since_text, since_time, unknown_service
from knft.cli.history_text import Selection, format_history
from knft.cli.status import MAX_AUDITS, audited_status, read_leftovers
from knft.cli.status_text import AuditConclusion, Leftovers, audit_conclusion, format_status, format_summary
from knft.control.messages import (
    AuditStatus,
    Cause,
    ConntrackStatus,
    EndpointChange,
    FamilyStatus,
    FirstSync,
    History,
    LoopbackStatus,
    LosingClaims,
    NamedProblems,
    ServerOutage,
    SourceStatus,
    Status,
    SyncFailure,
    TableChange,
)
from knft.errors import KernelError, UsageError
from knft.leftovers.messages import leftover_warning
from knft.model.names import NamespacedName
from knft.proxy_mode import Mode

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
    contested=LosingClaims(),
    removal_error="",
    repair_error="",
    foreign_changes=0,
    last_foreign_change="",
    last_foreign_change_age=None,
    check_delay=0.0,
    unchecked_change="",
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
    contested=LosingClaims(
        22, ("Service port shop/b does not get frontend 203.0.113.5 80/TCP, which Service port shop/a owns",)
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
    libnftables="1.0.6",
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
UNFINISHED = structs.replace(
    READY,
    source=SourceStatus("manifests", "/etc/knft/manifests", files={"read": 3, "missing": 0}),
    families={
        "IPv4": structs.replace(
            HEALTHY,
            state="changed",
            foreign_changes=9,
            last_foreign_change="nft (pid 4710) changed the table: services",
            last_foreign_change_age=8.5,
            check_delay=8.0,
            unchecked_change="nft (pid 4711) changed the table: services",
        ),
        "IPv6": structs.replace(HEALTHY, state="pending", pending_seconds=7.9),
    },
)
STARTING = structs.replace(
    READY,
    problem="waiting for the Services and endpoints of the cluster",
    source=SourceStatus("API server", "https://192.0.2.10:6443", unlisted=("services", "nodes")),
    families={
        name: structs.replace(
            HEALTHY, state="waiting", last_sync=None, last_sync_age=None, last_sync_seconds=None, elements=None
        )
        for name in ("IPv4", "IPv6")
    },
)
STATES: dict[str, Status] = {"ready": READY, "troubled": AWAY, "unfinished": UNFINISHED, "starting": STARTING}

CHANGE = EndpointChange(
    service="shop/web",
    port="http",
    protocol="TCP",
    family="IPv4",
    gained=("10.244.1.21:8080",),
    lost=("10.244.1.20:8080",),
    gained_not_listed=0,
    lost_not_listed=0,
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
    lost_not_listed=300,
    cause=Cause("Service", "shop/web", "", is_deleted=True, triggered="", received=NOON + 60),
    in_force=NOON + 61.5,
    seconds=1.5,
)
REFUSED = "192.0.2.10:6443: Connection refused"
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
        ServerOutage("", REFUSED, NOON + 70, NOON + 184.5),
        ServerOutage("endpointslices", "the server answered 403: forbidden", NOON + 190),
        SyncFailure("IPv4", "cannot allocate memory", NOON + 200, 7, "the worker process died", NOON + 262),
        SyncFailure("IPv6", "cannot allocate memory", NOON + 201),
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


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("in force", "knft is ready and all rules are in force"),
        ("pending", "knft is ready; IPv4: changes wait for a sync"),
        ("waiting", "knft is ready; IPv4: no sync has succeeded yet"),
        ("changed", "knft is ready; IPv4: another program has changed the table, and knft has not checked it yet"),
        ("failing", "knft is ready, with problems: IPv4: the last sync failed"),
        ("a later version's", "knft is ready; IPv4: a later version's"),
    ],
)
def test_conclusion_says_that_all_rules_are_in_force_only_if_they_are(state: str, expected: str) -> None:
    families = {"IPv6": HEALTHY, "IPv4": structs.replace(HEALTHY, state=state)}
    status = structs.replace(READY, families=families)
    assert format_status(status, None).splitlines()[0] == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"last_message_age": 28.0}, "connected; last heard 28.0 s ago"),
        (
            {
                "problems": ("cannot watch nodes: refused",),
                "unwatched_seconds": {"nodes": 12.0, "services": 5.0},
                "last_message_age": 40.0,
            },
            "with problems for 12.0 s; last heard 40.0 s ago",
        ),
        (
            {"problems": ("cannot watch nodes: refused",), "unwatched_seconds": {"nodes": 12.0, "services": 5.0}},
            "with problems for 12.0 s",
        ),
    ],
)
def test_status_tells_when_the_api_server_was_heard_last(source: dict[str, Any], expected: str) -> None:
    status = structs.replace(READY, source=SourceStatus("API server", "https://192.0.2.10:6443", **source))
    assert f"API server    https://192.0.2.10:6443, {expected}\n" in format_status(status, None)


def test_conclusion_names_the_resources_that_cannot_be_watched() -> None:
    seconds = {"services": 2.0, "nodes": 1.0}
    source = SourceStatus("API server", "https://192.0.2.10:6443", ("refused",), unwatched_seconds=seconds)
    text = format_status(structs.replace(READY, source=source), None)
    assert text.startswith("knft is ready, with problems: cannot watch nodes, services of the API server\n")


def test_status_tells_which_nodeports_are_served_on_loopback() -> None:
    assert "loopback" not in format_status(READY, None)
    failed = NamedProblems(1, {"30080 of shop/web:http": "Address already in use"})
    loopback = structs.replace(HEALTHY, loopback=LoopbackStatus(7, failed))
    text = format_status(structs.replace(READY, families={"IPv4": loopback}), None)
    assert text.startswith("knft is ready, with problems: IPv4: 1 NodePort not served on loopback\n")
    found = text[text.index("  loopback") : text.index("  foreign")]
    assert found == (
        "  loopback    7 NodePorts served\n"
        "  not served  1\n"
        "              NodePort 30080 of shop/web:http: Address already in use\n"
    )


def test_status_tells_why_no_nodeport_is_served_on_loopback() -> None:
    problem = "the process that serves NodePorts on loopback addresses was killed by signal 9"
    loopback = structs.replace(HEALTHY, loopback=LoopbackStatus(0, NamedProblems(), problem))
    text = format_status(structs.replace(READY, families={"IPv4": loopback}), None)
    assert text.startswith("knft is ready, with problems: IPv4: no NodePort served on loopback\n")
    assert f"  loopback    0 NodePorts served; {problem}\n" in text


def audited(**families: AuditStatus | str | None) -> Status:
    """Return a status with an audit of each family, or with the family's state."""
    return structs.replace(
        READY,
        families={
            name: structs.replace(READY.families[name], state=audit)
            if isinstance(audit, str)
            else structs.replace(READY.families[name], audit=audit)
            for name, audit in families.items()
        },
    )


LEFTOVERS = Leftovers(
    (
        leftover_warning(Mode.IPTABLES, ["18 chains in iptables-nft", "18 chains in ip6tables-nft"]),
        leftover_warning(Mode.NFTABLES, ["ip kube-proxy"]),
    ),
    ("iptables-legacy-save: Permission denied (you must be root)",),
)
FOUND = audited(IPv4=AuditStatus(0.5, 3, names=("cluster-ips", "services")), IPv6=AuditStatus(0.4))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (audited(IPv4=AuditStatus(0.5), IPv6=AuditStatus(0.4)), "audit: no differences"),
        (FOUND, "audit: IPv4: 3 differences in cluster-ips, services; knft repairs the table"),
        (
            audited(IPv4=AuditStatus(0.5, error="the worker process died"), IPv6=AuditStatus(0.4, 1)),
            "audit: IPv4: not compared: the worker process died; IPv6: 1 difference; knft repairs the table",
        ),
        # The audits of the first two are older than the request.
        (
            audited(IPv4="left", IPv6="waiting"),
            (
                "audit: IPv4: not compared: the table is left to an older version of knft; "
                "IPv6: not compared: no sync has succeeded yet"
            ),
        ),
        (audited(IPv4=None, IPv6=AuditStatus(0.1)), "audit: IPv4: not compared: knft has not audited this table"),
    ],
)
def test_status_after_an_audit_begins_with_what_it_found(status: Status, expected: str) -> None:
    found = audit_conclusion(status, 1.0)
    assert found == AuditConclusion(expected, is_equal=expected == "audit: no differences")
    assert format_status(status, None, audit=found).splitlines()[0] == expected


@pytest.mark.parametrize(
    ("seconds_since_sync", "audit", "conclusion", "line"),
    [
        # The sync took 1.4 ms. It may have begun before the audit ended, and then it has not repaired the table.
        (
            0.4999,
            "knft repairs the table",
            "knft is ready; IPv4: an audit found differences, and knft has not repaired the table yet",
            "the table differs, not repaired yet; last sync ",
        ),
        (
            0.4,
            "knft has repaired the table",
            "knft is ready and all rules are in force",
            "in force; last sync ",
        ),
        (
            None,
            "knft repairs the table",
            "knft is ready; IPv4: an audit found differences, and knft has not repaired the table yet",
            "the table differs, not repaired yet; no sync has succeeded yet",
        ),
    ],
)
def test_rules_are_not_in_force_until_a_sync_repairs_what_an_audit_found(
    seconds_since_sync: float | None, audit: str, conclusion: str, line: str
) -> None:
    family = structs.replace(FOUND.families["IPv4"], last_sync_age=seconds_since_sync)
    status = structs.replace(READY, families={"IPv4": family})
    lines = format_status(status, None, audit=audit_conclusion(status, 1.0)).splitlines()
    assert lines[:2] == [f"audit: IPv4: 3 differences in cluster-ips, services; {audit}", conclusion]
    assert any(each.startswith(f"IPv4          {line}") for each in lines)
    assert format_status(status, None).splitlines()[0] == conclusion


@pytest.mark.parametrize(
    ("gained", "lost", "more", "expected"),
    [
        (("b:1",), ("a:1", "a:2"), (0, 0), "lost a:1, a:2; gained b:1"),
        (("b:1",), ("a:1",), (1, 0), "lost a:1; gained b:1 and 1 more endpoint"),
        ((), ("a:1", "a:2"), (300, 2), "lost a:1, a:2 and 2 more endpoints; gained 300 endpoints"),
    ],
)
def test_endpoints_that_a_change_does_not_list_are_gained_or_lost(
    gained: tuple[str, ...], lost: tuple[str, ...], more: tuple[int, int], expected: str
) -> None:
    change = structs.replace(CHANGE, gained=gained, lost=lost, gained_not_listed=more[0], lost_not_listed=more[1])
    line = format_history(History((change,)), Selection(), None).splitlines()[0]
    assert line.endswith(f"  shop/web:http (TCP, IPv4): {expected}")


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_a_status_after_an_audit_with_leftovers_of_kube_proxy(width: str) -> None:
    text = format_status(FOUND, WIDTHS[width], leftovers=LEFTOVERS, audit=audit_conclusion(FOUND, 1.0))
    assert text == golden(f"status-audited-{width}")


@pytest.mark.parametrize(
    ("status", "leftovers", "expected"),
    [
        (
            FOUND,
            Leftovers(),
            [
                "ready",
                "synced 3.2 s ago",
                "0 left out",
                "audit 500.0 ms ago, 3 differences",
                "IPv4: an audit found differences, and knft has not repaired the table yet",
            ],
        ),
        (
            audited(IPv4=AuditStatus(5.0, 3), IPv6=AuditStatus(4.0, 1)),
            Leftovers(),
            ["ready", "synced 3.2 s ago", "0 left out", "audit 5.0 s ago, 4 differences"],
        ),
        (READY, Leftovers(), ["ready", "synced 3.2 s ago", "0 left out", "audit none yet"]),
        (
            READY,
            Leftovers(errors=("Permission denied",)),
            ["ready", "synced 3.2 s ago", "0 left out", "audit none yet"],
        ),
        (
            READY,
            LEFTOVERS,
            ["ready", "synced 3.2 s ago", "0 left out", "audit none yet", "leftovers of kube-proxy"],
        ),
        (
            structs.replace(AWAY, problem="", source=READY.source),
            Leftovers(),
            [
                "problems",
                "synced 3.2 s ago",
                "1 left out",
                "audit failed 30.0 s ago: the worker process died",
                (
                    "IPv6: the last sync failed; IPv6: 1 quarantined Service port; IPv6: 1 Service left out; "
                    "IPv6: stale objects cannot be removed; IPv6: the table cannot be repaired"
                ),
            ],
        ),
        (
            structs.replace(STARTING, families={"IPv4": STARTING.families["IPv4"]}),
            Leftovers(),
            [
                "not ready",
                "not synced yet",
                "0 left out",
                "audit 12m3s ago, no differences",
                "waiting for the Services and endpoints of the cluster; IPv4: no sync has succeeded yet",
            ],
        ),
        (
            UNFINISHED,
            Leftovers(),
            [
                "ready",
                "synced 3.2 s ago",
                "0 left out",
                "audit 12m3s ago, no differences",
                (
                    "IPv4: another program has changed the table, and knft has not checked it yet; "
                    "IPv6: changes wait for a sync"
                ),
            ],
        ),
    ],
)
def test_summary_of_a_status(status: Status, leftovers: Leftovers, expected: list[str]) -> None:
    """One line for each node: whether it is ready, and last what the operator has to look at."""
    assert format_summary(status, leftovers) == "\t".join(["node-1", "0.1.0", *expected]) + "\n"


def test_summary_of_a_service_that_both_families_leave_out() -> None:
    """It counts once. knft is not ready, whatever else is wrong, and the last sync is that of either family."""
    left_out = structs.replace(HEALTHY, left_out=TROUBLED.left_out)
    families = {"IPv4": structs.replace(left_out, last_sync_age=62.0), "IPv6": left_out}
    summary = format_summary(structs.replace(READY, problem="stopping", families=families))
    assert summary.split("\t")[2:5] == ["not ready", "synced 3.2 s ago", "1 left out"]
    assert summary.endswith("\tstopping; IPv4: 1 Service left out; IPv6: 1 Service left out\n")


def test_summary_has_no_tabs_and_lines_of_other_programs() -> None:
    status = structs.replace(READY, problem="a\tb\nc")
    assert format_summary(status).split("\t")[-1] == "a\\tb\\nc\n"


PREVENTED = AuditStatus(0.1, error="a sync was running, or the last one had failed")


@pytest.mark.parametrize(
    ("answers", "audits", "is_equal"),
    [
        ([{"IPv4": None}, {"IPv4": AuditStatus(0.0)}], 1, True),
        ([{"IPv4": None}, {"IPv4": PREVENTED}, {"IPv4": AuditStatus(0.0)}], 2, True),
        ([{"IPv4": None}, *[{"IPv4": PREVENTED}] * MAX_AUDITS], MAX_AUDITS, False),
        ([{"IPv4": None}, {"IPv4": PREVENTED, "IPv6": AuditStatus(0.0, 1)}], 1, False),
        ([{"IPv4": "waiting", "IPv6": None}], 0, False),
        ([{"IPv4": "left"}, {"IPv4": "left"}], 1, False),
    ],
)
def test_audit_that_a_sync_prevented_is_repeated_unless_it_found_a_difference(
    answers: list[dict[str, AuditStatus | str | None]], audits: int, *, is_equal: bool
) -> None:
    statuses = iter([msgspec.json.encode(audited(**each)) for each in answers])
    requests: list[None] = []
    answer, found = audited_status(lambda _: next(statuses), lambda: requests.append(None), lambda: 100.0)
    assert (len(requests), found.is_equal) == (audits, is_equal)
    assert msgspec.json.decode(answer, type=Status) == audited(**answers[-1])
    assert next(statuses, None) is None


def test_failed_audit_of_a_table_that_is_left_now_is_not_repeated() -> None:
    left = structs.replace(HEALTHY, state="left", audit=PREVENTED)
    answer = msgspec.json.encode(structs.replace(READY, families={"IPv4": left}))
    requests: list[None] = []
    audited_status(lambda _: answer, lambda: requests.append(None), lambda: 100.0)
    assert len(requests) == 1


def test_audit_before_the_request_does_not_count() -> None:
    """Reading the first status may have taken longer than the audit."""
    answer = msgspec.json.encode(audited(IPv4=AuditStatus(50.0)))
    times = iter([0.0, 100.0, 101.0])
    _, found = audited_status(lambda _: answer, lambda: None, lambda: next(times))
    assert found.text == "audit: IPv4: not compared: knft has not audited this table"


def test_each_reason_why_leftovers_are_unknown_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def warnings(on_error: Callable[[KernelError], None]) -> Iterator[str]:
        on_error(KernelError("refused"))
        on_error(KernelError("refused"))
        yield "found"

    monkeypatch.setattr("knft.cli.status.leftover_warnings", warnings)
    assert read_leftovers() == Leftovers(("found",), ("refused",))


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_a_history(width: str) -> None:
    assert format_history(HISTORY, Selection(), WIDTHS[width]) == golden(f"history-{width}")


@pytest.mark.parametrize("width", WIDTHS)
def test_history_of_an_endpoint_begins_with_its_conclusion(width: str) -> None:
    found = History((CHANGE,))
    assert format_history(found, Selection(endpoint="10.244.1.20"), WIDTHS[width]) == golden(
        f"history-endpoint-{width}"
    )


@pytest.mark.parametrize("width", [80, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    texts = [format_status(status, width) for status in STATES.values()]
    texts += [
        format_history(HISTORY, Selection(), width),
        format_history(HISTORY, Selection(endpoint="10.244.1.20"), width),
    ]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_first_line_of_a_history_names_the_node() -> None:
    assert format_history(History((), node="node-1"), Selection("shop/db"), None).splitlines() == [
        "node node-1",
        "knft has no changes of Service shop/db",
    ]


def test_history_of_an_endpoint_that_may_not_be_listed() -> None:
    text = format_history(History((CHANGE, SERVICE_DELETED)), Selection(endpoint="10.244.1.20"), None)
    conclusions, _ = text.split("\n\n")
    assert conclusions.splitlines()[1:] == [
        "10.244.1.20 may be among the endpoints that are not listed in 1 change, printed below"
    ]
    assert "10.244.1.99 left" not in format_history(
        History((SERVICE_DELETED,)), Selection(endpoint="10.244.1.99"), None
    )


def test_empty_history() -> None:
    assert format_history(History(()), Selection(), None) == "no such change since the start of knft\n"
    assert format_history(History((), dropped=1), Selection(endpoint="10.0.0.1"), None) == (
        "1 older change dropped: knft keeps the last ones in bounded memory\nno such change of endpoint 10.0.0.1\n"
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"service": "shop/db"}, "knft has no changes of Service shop/db"),
        ({"service": "shop/db", "port": "sql"}, "knft has no changes of Service port shop/db:sql"),
        (
            {"service": "shop/db", "since_text": "in the last 5m"},
            "knft has no changes of Service shop/db in the last 5m",
        ),
        (
            {"service": "shop/db", "endpoint": "10.0.0.1"},
            "knft has no changes of Service shop/db of endpoint 10.0.0.1",
        ),
        ({"since_text": "in the last 1s"}, "no such change in the last 1s"),
        (
            {"since_text": "since 2026-11-24T12:00:00Z", "endpoint": "10.0.0.1"},
            "no such change of endpoint 10.0.0.1 since 2026-11-24T12:00:00Z",
        ),
    ],
    ids=str,
)
def test_history_without_changes_names_what_was_asked_for(selection: dict[str, Any], expected: str) -> None:
    assert format_history(History(()), Selection(**selection), None) == f"{expected}\n"


def test_history_of_a_service_without_changes_has_those_of_tables() -> None:
    found = History((TableChange("IPv4", "nft (pid 4711) changed the table: services", NOON, NOON),))
    lines = format_history(found, Selection("shop/db"), None).splitlines()
    assert lines[0] == "knft has no changes of Service shop/db"
    assert lines[1].endswith("nft (pid 4711) changed the table: services")


def test_history_of_a_mistyped_service_names_similar_ones() -> None:
    existing = [NamespacedName("shop", "web"), NamespacedName("shop", "orders")]
    unknown = unknown_service(NamespacedName("shop", "wbe"), existing)
    assert format_history(History(()), Selection("shop/wbe"), None, unknown).splitlines() == [
        "knft has no changes of Service shop/wbe",
        (
            "the running knft has no Service shop/wbe: it does not exist, is headless, or has label "
            "service.kubernetes.io/service-proxy-name"
        ),
        "did you mean shop/web?",
    ]
    assert unknown_service(NamespacedName("shop", "web"), existing) == ()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, "first dns change table table deleted outage forbidden failed failing"),
        ({"service": "shop/web"}, "change table table deleted outage forbidden failed failing"),
        ({"service": "shop/we"}, "table table outage forbidden failed failing"),
        ({"service": "shop/web", "port": "http"}, "change table table deleted outage forbidden failed failing"),
        ({"service": "shop/web", "port": "htt"}, "table table outage forbidden failed failing"),
        ({"service": "default/dns", "port": ""}, "dns table table outage forbidden failed failing"),
        # The last change of endpoints does not list all of its endpoints.
        ({"endpoint": "10.244.1.20"}, "change deleted"),
        ({"endpoint": "10.244.1.21:8080"}, "change deleted"),
        ({"endpoint": "10.244.1.2"}, "deleted"),
        ({"endpoint": "10.244.1.20:80"}, "deleted"),
        ({"endpoint": "10.244.1.20", "service": "default/dns"}, ""),
        ({"endpoint": "fd00::20"}, "deleted"),
        ({"endpoint": "[fd00::20]:8080"}, "deleted"),
        ({"since": NOON + 35}, "table deleted outage forbidden failed failing"),
        ({"since": NOON + 35, "service": "default/dns"}, "table outage forbidden failed failing"),
        # Failures that had not ended before.
        ({"since": NOON + 180}, "outage forbidden failed failing"),
        ({"since": NOON + 261}, "forbidden failed failing"),
        ({"since": NOON + 999}, "forbidden failing"),
    ],
    ids=str,
)
def test_selection(selection: dict[str, Any], expected: str) -> None:
    labels = "first dns change table table deleted outage forbidden failed failing"
    names = dict(zip(map(id, HISTORY.entries), labels.split(), strict=True))
    selected = filter(selector(Selection(**selection)), HISTORY.entries)
    assert " ".join(names[id(entry)] for entry in selected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("web", ("default/web", None)), ("shop/web", ("shop/web", None)), ("shop/web:http", ("shop/web", "http"))],
)
def test_service_names(text: str, expected: tuple[str, str | None]) -> None:
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


@pytest.mark.parametrize(
    ("text", "expected"), [("5m", "in the last 5m"), ("2026-11-24T12:00:00Z", "since 2026-11-24T12:00:00Z")]
)
def test_since_in_words(text: str, expected: str) -> None:
    assert since_text(text) == expected


def test_invalid_selections_are_usage_errors() -> None:
    for text in ("", "/web", "shop/", "a/b/c", "shop/we b", "shop/web:", "10.96.0.1", ":30080"):
        with pytest.raises(UsageError, match="is not a Service"):
            service_name(text)
    for text in ("10.244.1", "10.244.1.20:http", "web:80", ":80", "10.0.0.1:99999999", "10.0.0.1:80/tcp", "web"):
        with pytest.raises(UsageError, match="--endpoint"):
            endpoint_name(text)
    with pytest.raises(UsageError, match="--since"):
        since_time("yesterday", NOON)
