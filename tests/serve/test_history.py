"""ChangeHistory: what it records of each sync, its bounds, and its cost."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct, structs

from knft.control.messages import EndpointChange, FirstSync, SyncFailure, TableChange
from knft.errors import UnavailableError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.model.names import ServicePortName
from knft.model.objects import ObjectChange
from knft.nft.transaction import Transaction
from knft.serve.history import (
    MAX_ERROR_LENGTH,
    MAX_FAILURES,
    MAX_LISTED,
    MAX_TABLE_CHANGES,
    MAX_WEIGHT,
    ChangeHistory,
)
from knft.serve.timestamp import Timestamp
from knft.sync.change_origins import ChangeOrigins
from knft.sync.foreign_changes import ForeignChangeSummary
from knft.sync.invalidation import Invalidation
from knft.sync.observer import AuditResult
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kernel_harness import decode_manifest, service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.refused_services import refuse_address

WALL = 1_000_000.0
"""Seconds by which the wall clock is ahead of the monotonic one."""
DOCUMENTED_BYTES = 300 << 10
"""docs/operations/status.md#memory has 280 KiB; sizes of objects depend on Python's version."""
WEB = ServicePortName("default", "web", "http", "TCP")
FLUSHED = ForeignChange(Family.IPV4, frozenset({"services"}), process="nft (pid 7)")


class RecordedHarness(MemoryHarness):
    """A Proxier whose syncs a ChangeHistory observes; ``now`` is the time of both."""

    def __init__(self, *, records: bool = True) -> None:
        super().__init__()
        self.state._records_origins = records
        self.history = ChangeHistory(lambda: Timestamp(int((self.now + WALL) * 1e9), self.now))

    def receive(self, item: dict[str, Any], version: str, *, deleted: bool = False) -> None:
        """Pass a changed object to the trackers, as an event with a resource version that arrives now."""
        key = (item["kind"], item["metadata"]["name"])
        previous = self.objects.pop(key, None)
        current = None if deleted else decode_manifest(item)
        if current is not None:
            self.objects[key] = current
        self.dispatcher.handle([ObjectChange(previous, current, version)], self.now)

    def sync_and_record(self, seconds: float = 1.0) -> None:
        """Sync after so many seconds."""
        self.now += seconds
        self.history.sync_succeeded(self.sync(), self.state)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def changes(self) -> list[EndpointChange]:
        return [entry for entry in self.history.read().entries if isinstance(entry, EndpointChange)]


def ipv4_slice(
    service_name: str, numbers: Sequence[int], name: str = "", *, unready: Sequence[int] = ()
) -> dict[str, Any]:
    found = slices(service_name, numbers)[0]
    found["metadata"]["name"] = name or f"{service_name}-ipv4"
    for number, endpoint in zip(numbers, found["endpoints"], strict=True):
        endpoint["conditions"] = {"ready": number not in unready}
    return found


@pytest.fixture
def harness() -> RecordedHarness:
    """Return a harness after its first sync, with Service web and endpoints 11 and 12."""
    made = RecordedHarness()
    made.receive(service("web"), "1")
    made.receive(ipv4_slice("web", (11, 12)), "2")
    made.sync_and_record()
    return made


def test_history_begins_with_the_first_sync(harness: RecordedHarness) -> None:
    (first,) = harness.history.read().entries
    assert first == FirstSync("IPv4", 1, 5, 0, WALL + 101.0)


def test_seconds_are_from_the_arrival_to_the_commit(harness: RecordedHarness) -> None:
    harness.receive(ipv4_slice("web", (12, 13)), "7")
    harness.sync_and_record(0.5)
    (change,) = harness.changes()
    assert (change.gained, change.lost) == (("10.244.2.13:8080",), ("10.244.2.11:8080",))
    assert change.cause is not None
    assert (change.cause.name, change.cause.resource_version) == ("default/web-ipv4", "7")
    assert (change.cause.received, change.in_force, change.seconds) == (WALL + 101.0, WALL + 101.5, 0.5)


def test_change_of_a_service_that_keeps_its_endpoints_is_no_entry(harness: RecordedHarness) -> None:
    harness.receive(service("web", externalIPs=["203.0.113.5"]), "3")
    harness.receive(ipv4_slice("web", (12, 11)), "4")
    harness.sync_and_record()
    assert harness.changes() == []
    harness.receive(ipv4_slice("web", (11,)), "5")
    harness.sync_and_record()
    assert [change.lost for change in harness.changes()] == [("10.244.2.12:8080",)]


def test_endpoint_leaves_by_the_event_that_made_it_unready(harness: RecordedHarness) -> None:
    """Of three slices, each endpoint is attributed to its own; the Service's port number changes none."""
    harness.receive(ipv4_slice("web", (11, 12), unready=(11,)), "10")
    harness.now += 1
    harness.receive(ipv4_slice("web", (12,)), "11")
    harness.receive(ipv4_slice("web", (13,), "web-second"), "12")
    harness.receive(ipv4_slice("web", (14,), "web-third"), "13")
    harness.receive(ipv4_slice("web", (14, 15), "web-third"), "14")
    harness.receive(service("web", externalIPs=["203.0.113.5"]), "15")
    harness.sync_and_record()
    found = {
        change.cause.resource_version: (change.gained, change.lost, change.seconds)
        for change in harness.changes()
        if change.cause is not None
    }
    assert found == {
        "10": ((), ("10.244.2.11:8080",), 2.0),
        "12": (("10.244.2.13:8080",), (), 1.0),
        "13": (("10.244.2.14:8080",), (), 1.0),
        "14": (("10.244.2.15:8080",), (), 1.0),
    }


def test_deleted_service_loses_its_endpoints_by_its_own_event(harness: RecordedHarness) -> None:
    harness.receive(ipv4_slice("web", (11, 12, 13)), "20")
    harness.receive(service("web"), "21", deleted=True)
    harness.sync_and_record()
    (change,) = harness.changes()
    assert (change.lost, change.gained) == (("10.244.2.11:8080", "10.244.2.12:8080"), ())
    assert change.cause is not None
    assert (change.cause.kind, change.cause.resource_version, change.cause.is_deleted) == ("Service", "21", True)


def with_port(endpoint_slice: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the slice with its only port under another name: Service port http loses the endpoints."""
    (port,) = endpoint_slice["ports"]
    return endpoint_slice | {"ports": [port | {"name": name}]}


def test_change_of_annotations_is_no_cause(harness: RecordedHarness) -> None:
    annotated = service("web")
    annotated["metadata"]["annotations"] = {"example.com/owner": "shop"}
    harness.receive(annotated, "22")
    harness.now += 3600
    harness.receive(with_port(ipv4_slice("web", (11, 12)), "other"), "23")
    harness.sync_and_record()
    (change,) = harness.changes()
    assert change.cause is not None
    assert (change.cause.kind, change.cause.resource_version, change.seconds) == ("EndpointSlice", "23", 1.0)


def test_change_of_another_port_of_the_service_is_no_cause(harness: RecordedHarness) -> None:
    changed = service("web")
    changed["spec"]["ports"].append({"name": "admin", "port": 9090, "protocol": "TCP"})
    harness.receive(with_port(ipv4_slice("web", (11, 12)), "other"), "24")
    harness.receive(changed, "25")
    harness.sync_and_record()
    (change,) = harness.changes()
    assert change.cause is not None
    assert (change.cause.kind, change.cause.resource_version) == ("EndpointSlice", "24")


def test_endpoint_is_attributed_to_its_event_after_many_others(harness: RecordedHarness) -> None:
    harness.table.on_commit = refuse_all
    for number in range(18):
        harness.receive(ipv4_slice("web", (12, *range(100, 100 + number))), str(1000 + number))
        with pytest.raises(UnavailableError):
            harness.sync()
        harness.now += 60
    harness.table.stop_failing()
    harness.sync_and_record()
    (lost,) = (change for change in harness.changes() if change.lost)
    assert lost.cause is not None
    assert (lost.cause.resource_version, lost.seconds) == ("1000", 18 * 60 + 1.0)


def refuse_all(_: Transaction) -> None:
    msg = "refused for the test"
    raise UnavailableError(msg)


def test_failed_syncs_keep_the_first_state_and_the_arrival(harness: RecordedHarness) -> None:
    """The endpoint was reached until the sync that succeeded; one that came and went meanwhile never was."""
    harness.table.on_commit = refuse_all
    harness.receive(ipv4_slice("web", (12, 13)), "30")
    harness.now += 1
    with pytest.raises(UnavailableError):
        harness.sync()
    harness.receive(ipv4_slice("web", (12, 14)), "31")
    harness.table.stop_failing()
    harness.sync_and_record(10.0)
    gained, lost = sorted(harness.changes(), key=lambda change: change.gained == ())
    assert (gained.gained, gained.lost, gained.seconds) == (("10.244.2.14:8080",), (), 10.0)
    assert (lost.gained, lost.lost, lost.seconds) == ((), ("10.244.2.11:8080",), 11.0)


def test_changes_of_a_quarantined_service_wait_until_it_is_released(harness: RecordedHarness) -> None:
    harness.table.on_commit = refuse_address("10.96.0.66")
    harness.receive(service("bad", 66), "40")
    harness.receive(ipv4_slice("bad", (21,)), "41")
    harness.receive(ipv4_slice("web", (12,)), "42")
    harness.sync_and_record()
    assert [change.service for change in harness.changes()] == ["default/web"]
    harness.table.stop_failing()
    harness.sync_and_record(100.0)
    bad = harness.changes()[-1]
    assert (bad.service, bad.gained, bad.seconds) == ("default/bad", ("10.244.2.21:8080",), 101.0)


def test_service_port_that_the_first_sync_quarantined_gains_its_endpoints_when_released() -> None:
    """The endpoint from before the first sync has no event."""
    harness = RecordedHarness()
    harness.table.on_commit = refuse_address("10.96.0.66")
    harness.receive(service("bad", 66), "40")
    harness.receive(ipv4_slice("bad", (21,)), "41")
    harness.sync_and_record()
    harness.table.stop_failing()
    harness.receive(ipv4_slice("bad", (21, 22)), "42")
    harness.sync_and_record(100.0)
    found = {change.gained: change.cause and change.cause.resource_version for change in harness.changes()}
    assert found == {("10.244.2.21:8080",): None, ("10.244.2.22:8080",): "42"}


def test_number_of_listed_endpoints_is_bounded(harness: RecordedHarness) -> None:
    harness.receive(ipv4_slice("web", range(100, 400)), "50")
    harness.sync_and_record()
    (change,) = harness.changes()
    assert len(change.gained) + len(change.lost) == MAX_LISTED
    assert (change.lost_not_listed, change.gained_not_listed) == (0, 302 - MAX_LISTED)


def test_memory_is_bounded_over_thousands_of_changes(harness: RecordedHarness) -> None:
    """The newest changes stay. Changes of one endpoint each take the most memory: less than the documentation says."""
    count = 2_000
    for number in range(count):
        harness.receive(ipv4_slice("web", (11, 12) if number % 2 else (11,)), str(10**9 + number))
        harness.sync_and_record(0.01)
    history, changes = harness.history.read(), harness.changes()
    assert len(changes) == MAX_WEIGHT // 2
    assert len(changes) + history.dropped == count + 1  # and the first sync
    assert changes[-1].cause is not None
    assert changes[-1].cause.resource_version == str(10**9 + count - 1)
    size = size_of(history, set())
    print(f"{size / 1024:.0f} KiB")
    assert size < DOCUMENTED_BYTES


def size_of(value: object, seen: set[int]) -> int:
    """Return the size of an object and of all that it refers to, in bytes."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts = value if isinstance(value, tuple) else structs.astuple(value) if isinstance(value, Struct) else ()
    return sys.getsizeof(value) + sum(size_of(part, seen) for part in parts)


def steps_of_deletion(harness: RecordedHarness, *, services: int, endpoints: int = 1) -> int:
    """Return the interpreter steps of recording that so many Services of one endpoint were deleted in one sync."""
    port, (endpoint, *_) = harness.state.service_port(WEB), harness.state.endpoints(WEB)
    names = [WEB._replace(name=f"web-{number}") for number in range(services)]
    origins = ChangeOrigins(dict.fromkeys(names, port), dict.fromkeys(names, (endpoint,) * endpoints))
    report = structs.replace(harness.sync(), origins=origins)
    return count_bytecode_steps(lambda: harness.history.sync_succeeded(report, harness.state))


@pytest.mark.parametrize("endpoints", [1, 0])
def test_work_of_a_sync_with_many_changes_is_bounded(harness: RecordedHarness, endpoints: int) -> None:
    """What is not looked at counts as dropped, also if no endpoint changed."""
    fewer, more = (steps_of_deletion(harness, services=count, endpoints=endpoints) for count in (2_000, 8_000))
    assert more < fewer * 1.1
    assert harness.history.read().dropped >= 8_000 - MAX_WEIGHT


def test_changed_endpoints_come_before_other_changes_in_a_large_sync(harness: RecordedHarness) -> None:
    port, endpoints = harness.state.service_port(WEB), harness.state.endpoints(WEB)
    names = [WEB._replace(name=f"a-{number}") for number in range(2 * MAX_WEIGHT)]
    origins = ChangeOrigins({**dict.fromkeys(names, port), WEB: None}, {WEB: endpoints})
    harness.history.sync_succeeded(structs.replace(harness.sync(), origins=origins), harness.state)
    assert [change.service for change in harness.changes()] == ["default/web"]


def repaired(harness: RecordedHarness) -> list[float | None]:
    return [entry.repaired for entry in harness.history.read().entries if isinstance(entry, TableChange)]


def test_table_that_changes_again_before_it_is_read_back_is_not_repaired_yet(harness: RecordedHarness) -> None:
    """The time of the repair is after the table was read back."""
    harness.history.table_changed(Family.IPV4, ForeignChangeSummary().with_change(FLUSHED, harness.now))
    harness.table.elements["cluster-ips"].clear()
    harness.proxier.invalidate(Invalidation(declarations=True))
    harness.table.on_commit = lambda _: harness.proxier.plan_check()
    harness.sync_and_record()
    assert repaired(harness) == [None]
    harness.table.stop_failing()
    harness.proxier.invalidate(Invalidation(declarations=True))
    harness.table.on_read = lambda: harness.pass_time(0.5)
    harness.sync_and_record()
    assert repaired(harness) == [WALL + harness.now]
    assert harness.table.reads >= 2


def test_change_of_the_table_has_the_time_of_its_notification(harness: RecordedHarness) -> None:
    """The check may begin 30 s later."""
    changes = ForeignChangeSummary().with_change(FLUSHED, harness.now).with_change(FLUSHED, harness.now + 2)
    harness.now += 30
    harness.history.table_changed(Family.IPV4, changes)
    (entry,) = (entry for entry in harness.history.read().entries if isinstance(entry, TableChange))
    assert entry.at == WALL + 101.0


def test_changes_of_the_table_are_bounded_and_remove_no_others(harness: RecordedHarness) -> None:
    harness.receive(ipv4_slice("web", (12,)), "60")
    harness.sync_and_record()
    for _ in range(10 * MAX_TABLE_CHANGES):
        harness.history.table_changed(Family.IPV4, ForeignChangeSummary().with_change(FLUSHED, harness.now))
    harness.history.table_audited(Family.IPV4, AuditResult())
    harness.history.table_audited(Family.IPV4, AuditResult(3))
    history = harness.history.read()
    found = [entry for entry in history.entries if isinstance(entry, TableChange)]
    assert len(found) == MAX_TABLE_CHANGES
    assert found[-1].description == "an audit found 3 elements or chains changed"
    assert found[0].description == "nft (pid 7) changed the table: services"
    assert len(harness.changes()) == 1


def failures(harness: RecordedHarness) -> list[SyncFailure]:
    return [entry for entry in harness.history.read().entries if isinstance(entry, SyncFailure)]


def test_failed_syncs_are_one_entry_until_a_sync_succeeds(harness: RecordedHarness) -> None:
    for error in ("refused", "refused", "timeout"):
        harness.now += 1
        harness.history.sync_failed(Family.IPV4, 0.1, error)
    began = WALL + harness.now - 2
    assert failures(harness) == [SyncFailure("IPv4", "refused", began, 3, "timeout")]
    harness.history.sync_failed(Family.IPV4, 0.1, "refused")
    harness.sync_and_record()
    ended = WALL + harness.now
    assert failures(harness) == [SyncFailure("IPv4", "refused", began, 4, "", ended)]
    harness.sync_and_record()
    harness.history.sync_failed(Family.IPV4, 0.1, "refused")
    assert [each.ended for each in failures(harness)] == [ended, None]


def test_failed_first_sync_is_listed(harness: RecordedHarness) -> None:
    harness.history.sync_failed(Family.IPV6, 0.1, "refused")
    assert [(each.family, each.ended) for each in failures(harness)] == [("IPv6", None)]
    harness.sync_and_record()
    assert [(each.family, each.ended) for each in failures(harness)] == [("IPv6", None)]


def test_failures_are_bounded_and_remove_no_others(harness: RecordedHarness) -> None:
    harness.receive(ipv4_slice("web", (12,)), "60")
    harness.sync_and_record()
    for _ in range(3 * MAX_FAILURES):
        harness.history.sync_failed(Family.IPV4, 0.1, "x" * 10_000)
        harness.sync_and_record()
    found = failures(harness)
    assert (len(found), harness.history.read().dropped) == (MAX_FAILURES, 2 * MAX_FAILURES)
    assert {len(each.error) for each in found} == {MAX_ERROR_LENGTH}
    assert len(harness.changes()) == 1


def steps_of_changes(harness: RecordedHarness, *, observes: bool, endpoints: int) -> int:
    """Return the interpreter steps of ten changes of one of many endpoints, with their syncs."""
    harness.receive(service("web"), "1")
    harness.receive(ipv4_slice("web", range(100, 100 + endpoints)), "2")
    harness.sync_and_record()

    def change_and_sync() -> None:
        for number in range(10):
            harness.receive(changed[number], "3")
            report = harness.sync()
            if observes:
                harness.history.sync_succeeded(report, harness.state)

    changed = [ipv4_slice("web", [*range(101, 100 + endpoints), 1000 + number]) for number in range(11)]
    harness.receive(changed[10], "3")
    harness.sync_and_record()
    return count_bytecode_steps(change_and_sync)


@pytest.mark.parametrize("endpoints", [2, 200])
def test_recording_costs_a_small_part_of_a_sync(endpoints: int) -> None:
    """Without the time in the kernel, which a table in memory has not."""
    without = steps_of_changes(RecordedHarness(records=False), observes=False, endpoints=endpoints)
    recorded = steps_of_changes(RecordedHarness(), observes=True, endpoints=endpoints)
    print(f"{recorded / without:.3f}")
    assert recorded < without * 1.25
