"""Quarantine: a refused Service port does not stop the others. Here the kernel itself refuses the transactions."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from knft.errors import LibraryDiedError
from knft.families import Family
from knft.nft.objects import Key
from knft.nft.transaction import Transaction
from knft.render.names import CLUSTER_IPS, SERVICE_CIDRS, SERVICE_IPS, SOURCE_RANGES
from knft.sync.invalidation import Invalidation
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import KernelHarness, contents_of_fresh_start, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.refused_services import SERVICE_COUNT, apply_many_services, refuse_address

pytestmark = pytest.mark.kernel
PAUSE = 30.0


def _frontend(number: int) -> Key:
    return f"10.96.0.{number}", "tcp", 80


def _conflicting_changes(
    namespace: Namespace, keys: Collection[Key], *, times: int = 1000
) -> Callable[[Transaction], None]:
    """Return a commit hook that deletes elements just before knft does, or adds them with another value."""
    left = [times]

    def nft(command: str, key: Key, value: str = "") -> None:
        element = " . ".join(map(str, key)) + value
        namespace.run(["nft", f"{command} element ip knft {SERVICE_IPS} {{ {element} }}"], check=False)

    def conflict(transaction: Transaction) -> None:
        for key in keys:
            if not left[0]:
                return
            if key in transaction.removed.get(SERVICE_IPS, ()):
                nft("delete", key)
                left[0] -= 1
            elif key in transaction.added.get(SERVICE_IPS, {}):
                nft("add", key, " : drop")
                left[0] -= 1

    return conflict


def _served(harness: KernelHarness) -> set[int]:
    """Return the numbers of the Services with a frontend and endpoints."""
    contents = harness.listing().contents
    arrays = {name.prefix[0] for name in contents.arrays}
    found = [key[0] for container, key in contents.entries if container == SERVICE_IPS]
    return {int(str(address).rpartition(".")[2]) for address in found if address in arrays}


@pytest.mark.parametrize("what", ["deleted", "added with another value"])
def test_single_conflict_is_resolved_by_comparison(namespace: Namespace, what: str) -> None:
    """A single ENOENT or EEXIST does not quarantine a Service port."""
    harness = KernelHarness(namespace)
    apply_many_services(harness)
    if what == "deleted":
        harness.sync()
        harness.delete("Service", "web-7")
    harness.checked_tables[Family.IPV4].on_commit = _conflicting_changes(namespace, [_frontend(7)], times=1)
    report = harness.sync()[Family.IPV4]
    assert report.is_full
    assert report.quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


@pytest.mark.parametrize("restarted", [True, False], ids=["at a start", "later"])
def test_repeatedly_refused_service_ports_are_quarantined_alone(namespace: Namespace, *, restarted: bool) -> None:
    harness = KernelHarness(namespace)
    harness.sync()
    if restarted:
        harness = KernelHarness(namespace)
    apply_many_services(harness)
    harness.checked_tables[Family.IPV4].on_commit = _conflicting_changes(namespace, [_frontend(7), _frontend(23)])
    report = harness.sync()[Family.IPV4]
    assert {str(name) for name in report.quarantined} == {"default/web-7:http", "default/web-23:http"}
    assert all("Could not process rule" in reason for reason in report.quarantined.values())
    assert _served(harness) == set(range(1, SERVICE_COUNT + 1)) - {7, 23}


def test_quarantined_service_port_is_retried_with_backoff(namespace: Namespace) -> None:
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    checked = harness.checked_tables[Family.IPV4]
    checked.on_commit = _conflicting_changes(namespace, [_frontend(7)])
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        report = harness.sync()[Family.IPV4]
        assert report.next_sync_within == pause
        clock.now += pause - 1
        checked.transactions.clear()
        assert harness.sync()[Family.IPV4].next_sync_within == 1
        assert all(item.is_empty for item in checked.transactions)
        clock.now += 1
    checked.on_commit = lambda _: None
    report = harness.sync()[Family.IPV4]
    assert (report.quarantined, report.next_sync_within) == ({}, None)
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_other_service_ports_are_updated_during_quarantine(namespace: Namespace) -> None:
    """Including those that share elements with the quarantined one, and without listing the table at each sync."""
    harness = KernelHarness(namespace)
    apply_many_services(harness)
    checked = harness.checked_tables[Family.IPV4]
    checked.on_commit = _conflicting_changes(namespace, [_frontend(7)])
    harness.sync()
    reads = checked.reads
    harness.apply(service("late", 99), *slices("late", [7]))
    harness.delete("Service", "web-8")
    report = harness.sync()[Family.IPV4]
    assert not report.is_full
    assert reads == checked.reads
    assert _served(harness) == set(range(1, SERVICE_COUNT + 1)) - {7, 8} | {99}


def test_changed_service_port_is_retried_after_first_delay(namespace: Namespace) -> None:
    """The change may have fixed it, but frequent changes must not cause frequent retries."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    harness.checked_tables[Family.IPV4].on_commit = _conflicting_changes(namespace, [_frontend(7)])
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        assert harness.sync()[Family.IPV4].next_sync_within == pause
        clock.now += pause
    harness.sync()
    harness.checked_tables[Family.IPV4].on_commit = lambda _: None
    clock.now += PAUSE - 1
    harness.apply(*slices("web-7", [50]))
    assert harness.sync()[Family.IPV4].next_sync_within == 1
    clock.now += 1
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_quarantined_service_port_keeps_its_elements(namespace: Namespace) -> None:
    """They stay unchanged, also after full syncs, until the Service is deleted."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    harness.sync()
    before = harness.listing().contents
    harness.apply(*slices("web-7", [51, 52, 53]))
    harness.checked_tables[Family.IPV4].on_commit = _conflicting_changes(namespace, [_frontend(7)])
    assert set(map(str, harness.sync()[Family.IPV4].quarantined)) == {"default/web-7:http"}
    arrays = {name for name in before.arrays if name.prefix[0] == "10.96.0.7"}
    assert arrays
    for _ in range(3):
        contents = harness.listing().contents
        assert {name: contents.arrays[name] for name in arrays} == {name: before.arrays[name] for name in arrays}
        assert (CLUSTER_IPS, ("10.96.0.7",)) in contents.members
        clock.now += 3601
        harness.sync()
    harness.checked_tables[Family.IPV4].on_commit = lambda _: None
    harness.delete("Service", "web-7")
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_planning_error_quarantines_one_service_port(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    state = harness.proxiers[Family.IPV4].state
    plan = state.plan

    def failing(name: object) -> object:
        if "web-7:" in str(name):
            msg = "bug for the test"
            raise ZeroDivisionError(msg)
        return plan(name)  # type: ignore[arg-type]

    monkeypatch.setattr(state, "plan", failing)
    apply_many_services(harness)
    report = harness.sync()[Family.IPV4]
    (reason,) = report.quarantined.values()
    assert reason == "rendering failed, please report this: ZeroDivisionError('bug for the test')"
    assert _served(harness) == set(range(1, SERVICE_COUNT + 1)) - {7}
    monkeypatch.undo()
    clock.now += PAUSE
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def _elements_of(harness: KernelHarness, address: str) -> tuple[object, object]:
    """Return the verdict map elements and the endpoint arrays of a frontend."""
    contents = harness.listing().contents
    entries = {place: entry for place, entry in contents.entries.items() if address in place[1]}
    return entries, {name: array for name, array in contents.arrays.items() if name.prefix[0] == address}


def test_quarantined_service_port_keeps_all_elements_when_it_becomes_sticky(namespace: Namespace) -> None:
    """It also keeps its old verdict, which the chains with session affinity would replace."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    harness.sync()
    before = _elements_of(harness, "10.96.0.7")
    harness.apply(service("web-7", 7, sessionAffinity="ClientIP"))
    harness.checked_tables[Family.IPV4].on_commit = refuse_address("10.96.0.7")
    assert harness.sync()[Family.IPV4].quarantined
    for _ in range(3):
        assert before == _elements_of(harness, "10.96.0.7")
        clock.now += 3601
        harness.proxiers[Family.IPV4].invalidate(Invalidation())
        harness.sync()
    harness.checked_tables[Family.IPV4].on_commit = lambda _: None
    clock.now += 7200
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert before != _elements_of(harness, "10.96.0.7")


def test_quarantined_service_port_keeps_the_chains_of_its_affinity_timeout(namespace: Namespace) -> None:
    """No other Service port has this timeout any more; the chains are removed an hour after the quarantine."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    harness.apply(service("web-7", 7, sessionAffinity="ClientIP"))
    harness.sync()
    before = _affinity_chains(harness)
    assert len(before) == 2
    elements = _elements_of(harness, "10.96.0.7")
    harness.checked_tables[Family.IPV4].on_commit = refuse_address("10.96.0.7")
    harness.apply(service("web-7", 7), *slices("web-7", [7]))
    for _ in range(3):
        assert harness.sync()[Family.IPV4].quarantined
        assert (before, elements) == (_affinity_chains(harness), _elements_of(harness, "10.96.0.7"))
        clock.now += 3601
    harness.checked_tables[Family.IPV4].on_commit = lambda _: None
    clock.now += 3601
    assert harness.sync()[Family.IPV4].quarantined == {}
    harness.sync()
    assert _affinity_chains(harness) == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def _affinity_chains(harness: KernelHarness) -> dict[str, int]:
    """Return the chains of session affinity, with their number of rules."""
    return {name: count for name, count in harness.listing().rule_counts.items() if name.startswith("affinity-")}


def test_new_table_ends_quarantine(namespace: Namespace) -> None:
    """The objects that caused the conflict are gone with the old table."""
    harness = KernelHarness(namespace, clock=FakeClock())
    apply_many_services(harness)
    checked = harness.checked_tables[Family.IPV4]
    checked.on_commit = refuse_address("10.96.0.7")
    assert harness.sync()[Family.IPV4].quarantined
    checked.on_commit = lambda _: None
    namespace.run(["nft", "delete", "table", "ip", "knft"])
    harness.proxiers[Family.IPV4].invalidate(Invalidation())
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_service_port_that_crashes_the_library_is_quarantined(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, clock=FakeClock())
    apply_many_services(harness)
    harness.checked_tables[Family.IPV4].on_commit = refuse_address("10.96.0.7", LibraryDiedError)
    assert set(map(str, harness.sync()[Family.IPV4].quarantined)) == {"default/web-7:http"}
    assert _served(harness) == set(range(1, SERVICE_COUNT + 1)) - {7}


def test_batch_that_was_committed_before_libnftables_died_is_followed_by_a_full_sync(namespace: Namespace) -> None:
    """The change of one of its Service ports is refused alone, because it is in force already."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("a", 1), *slices("a", [1, 2]), service("b", 2), *slices("b", [3, 4]))
    harness.sync()
    checked = harness.checked_tables[Family.IPV4]
    # The partial commit and those of the full sync are refused; the next one that is not empty is the batch of both.
    checked.refused_commits, checked.crashes_after_commit = 3, 1
    harness.apply(*slices("a", [1]), *slices("b", [3, 4, 5]))
    report = harness.proxiers[Family.IPV4].sync()
    assert {str(name): "No such file" in reason for name, reason in report.quarantined.items()} == {
        "default/a:http": True
    }
    assert harness.proxiers[Family.IPV4].is_full_sync_planned
    harness.sync()
    clock.now += PAUSE
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_state_is_correct_after_table_replacement(namespace: Namespace) -> None:
    """A Service port is quarantined, then even the base rules are refused: knft replaces the table."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    apply_many_services(harness)
    harness.sync()
    checked = harness.checked_tables[Family.IPV4]
    checked.on_commit = refuse_address("10.96.0.7")
    harness.apply(*slices("web-7", [50]))
    assert harness.sync()[Family.IPV4].quarantined
    checked.on_commit = lambda _: None
    clock.now += PAUSE + 1
    checked.refused_commits = 3
    harness.proxiers[Family.IPV4].invalidate(Invalidation())
    assert harness.sync()[Family.IPV4].quarantined == {}
    harness.delete("Service", "web-3")
    harness.sync()
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_overlapping_ranges_are_replaced_during_quarantine(namespace: Namespace) -> None:
    """Source ranges and Service CIDRs: libnftables would merge or refuse overlapping intervals."""
    harness = KernelHarness(namespace, clock=FakeClock())
    apply_many_services(harness)

    def with_source_range(source: str) -> dict[str, Any]:
        spec = service("web-3", 3, type="LoadBalancer", loadBalancerSourceRanges=[source])
        return spec | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.3"}]}}}

    harness.apply(with_source_range("192.0.2.0/28"))
    harness.sync()
    harness.apply(with_source_range("192.0.2.0/24"), *slices("web-7", [50]))
    cidrs = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.96.0.0/12", "fd00:10:96::/112"]}}
    harness.apply({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"} | cidrs)
    harness.checked_tables[Family.IPV4].on_commit = refuse_address("10.96.0.7")
    assert set(map(str, harness.sync()[Family.IPV4].quarantined)) == {"default/web-7:http"}
    members = harness.listing().contents.members
    ranges = {(container, key[-1]) for container, key in members if container in (SOURCE_RANGES, SERVICE_CIDRS)}
    assert ranges == {(SOURCE_RANGES, "192.0.2.0/24"), (SERVICE_CIDRS, "10.96.0.0/12")}
