"""The text of ``knft status`` at 80 and 200 columns, and piped; audits, summaries and leftovers."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from knft.cli.status import MAX_AUDITS, audited_status, read_leftovers
from knft.cli.status_text import AuditConclusion, Leftovers, audit_conclusion, format_status, format_summary
from knft.control.messages import (
    AuditStatus,
    LoopbackStatus,
    NamedProblems,
    SourceStatus,
    Status,
)
from knft.errors import KernelError
from tests.cli.example_status import (
    AWAY,
    FOUND,
    HEALTHY,
    LEFTOVERS,
    READY,
    STARTING,
    STATES,
    TROUBLED,
    UNFINISHED,
    WIDTHS,
    audited,
    golden,
)


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
