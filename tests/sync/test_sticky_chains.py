"""Chains of sticky Service ports: numbered, deleted when unused, and found again at a restart."""

from typing import Any

import pytest

from knft.families import Family
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS
from knft.render.numbering import MAX_RESERVED_INDEXES_PER_ENDPOINT
from knft.sync.invalidation import Invalidation
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import KernelHarness, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.old_kernel import refuse_as_before_6_2

pytestmark = pytest.mark.kernel

HOUR = 3600.0
STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}


def _sticky_chains(harness: KernelHarness) -> dict[str, int]:
    """Return the sticky port's chains, without its number, with their number of rules."""
    chains = harness.listing().rule_counts
    return {name.split("-", 2)[2]: count for name, count in chains.items() if name.startswith("sticky-")}


def _restart(harness: KernelHarness, clock: FakeClock) -> KernelHarness:
    """Return a new process on the same kernel with the same objects, before its first sync."""
    second = KernelHarness(harness.namespace, clock=clock)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


def _number(harness: KernelHarness) -> int | str:
    """Return the number of the only sticky port."""
    ((_, (number,)),) = [place for place in harness.listing().contents.entries if place[0] == STICKY_PORTS]
    return number


def _record_count(harness: KernelHarness) -> int:
    return sum(container == STICKY_PORTS for container, _ in harness.listing().contents.entries)


def _indexes(harness: KernelHarness) -> set[int]:
    """Return the indexes of the endpoints of the only sticky port."""
    arrays = harness.listing().contents.arrays
    (array,) = [array for name, array in arrays.items() if name.container == STICKY_ENDPOINTS]
    return {index for index, target in enumerate(array) if target is not None}


def _slots(harness: KernelHarness) -> int:
    """Return how many indexes the only sticky port has, including reserved ones."""
    ((_, size, *_),) = [
        entry.comment.split() for place, entry in harness.listing().contents.entries.items() if place[0] == STICKY_PORTS
    ]
    return int(size)


def test_unused_chains_are_deleted_at_once(namespace: Namespace) -> None:
    """In the transaction that removes the last verdict, and rules, that lead to them."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", node_port=30080, **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    sent = harness.checked_tables[Family.IPV4].transactions
    sent.clear()
    harness.apply(service("web", **STICKY))
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 3, "cluster": 3}
    harness.delete("Service", "web")
    harness.sync()
    assert _sticky_chains(harness) == {}
    assert [bool(each.deleted_chains) for each in sent if each.chains] == [True, True]


def test_chains_are_emptied_at_once_and_deleted_a_second_later(namespace: Namespace) -> None:
    """Kernels before 6.2 refuse to delete a chain in the transaction that removes the last element that leads to it."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    for table in harness.checked_tables.values():
        table.on_commit = refuse_as_before_6_2
    harness.apply(service("web", node_port=30080, **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 3, "cluster": 4, "external": 1}

    # The gap between the indexes requires two rules; the NodePort's pool is gone.
    harness.apply(service("web", **STICKY), *slices("web", [11, 13]))
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 2, "cluster": 4, "external": 0}
    clock.now += 0.5
    harness.sync()
    assert "external" in _sticky_chains(harness)
    clock.now += 0.6
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 2, "cluster": 4}

    harness.delete("Service", "web")
    harness.sync()
    assert set(_sticky_chains(harness).values()) == {0}
    clock.now += 1.1
    harness.sync()
    assert _sticky_chains(harness) == {}


def test_reused_chain_is_not_deleted(namespace: Namespace) -> None:
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    for numbers in ([11, 12], [], [11, 12]):
        harness.apply(service("web", **STICKY), *slices("web", numbers))
        harness.sync()
        clock.now += 0.4
    clock.now += 5
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 2, "cluster": 3}
    assert _indexes(harness) == {2, 3}


@pytest.mark.parametrize("interlude", ["affinity removed", "Service deleted"])
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_port_that_becomes_sticky_again_gets_new_indexes(
    namespace: Namespace, interlude: str, *, restarted: bool
) -> None:
    """The kernel still holds affinity entries with the old indexes, so these stay reserved."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    sticky = [service("web", **STICKY), *slices("web", [11, 12])]
    harness.apply(*sticky)
    harness.sync()
    number = _number(harness)
    if interlude == "Service deleted":
        harness.delete("Service", "web")
    else:
        harness.apply(service("web"))
    harness.sync()
    if restarted:
        harness = _restart(harness, clock)
        harness.sync()
    harness.apply(*sticky)
    harness.sync()
    assert _number(harness) == number
    assert _indexes(harness) == {2, 3}


def test_number_is_released_when_all_clients_have_expired(namespace: Namespace) -> None:
    """The first full sync afterwards does this; until then the record stays, also after a restart."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("web", **STICKY), *slices("web", [11, 12]))
    harness.sync()
    harness.delete("Service", "web")
    harness.sync()
    clock.now += HOUR
    harness.sync()
    assert _record_count(harness) == 1
    second = _restart(harness, clock)
    second.sync()
    assert _record_count(second) == 1
    for _ in range(3):
        clock.now += HOUR + 1
        second.sync()
    assert _record_count(second) == 0


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_repeated_rollouts_reuse_indexes(namespace: Namespace, *, restarted: bool) -> None:
    """Hourly full syncs and restarts do not prolong the reservation of an index."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    for rollout in range(8):
        harness.apply(service("web", **STICKY), *slices("web", [2 * rollout + 1, 2 * rollout + 2]))
        harness.sync()
        for _ in range(5):
            clock.now += HOUR
            if restarted:
                harness = _restart(harness, clock)
            harness.sync()
    assert _slots(harness) <= 4


@pytest.mark.parametrize(
    ("is_new", "external", "prepared"),
    [
        pytest.param(False, {}, set(), id="cluster IP only"),
        pytest.param(False, {"node_port": 30080}, {"external", "cluster", "cluster-known"}, id="with a NodePort"),
        pytest.param(True, {"node_port": 30080}, set(), id="new Service"),
    ],
)
def test_new_chains_are_sent_first_if_replaced_goto_verdicts_lead_to_them(
    namespace: Namespace, external: dict[str, Any], prepared: set[str], *, is_new: bool
) -> None:
    """Chains that only jumps or new frontends lead to need no transaction of their own, which would double the time."""
    harness = KernelHarness(namespace, clock=FakeClock())
    harness.apply(service("plain", 20, node_port=30020), *slices("plain", [11, 12]))
    if not is_new:
        harness.apply(service("web", **external), *slices("web", [11, 12]))
    harness.sync()
    sent = harness.checked_tables[Family.IPV4].transactions
    sent.clear()
    harness.apply(service("web", **STICKY, **external), *slices("web", [11, 12]))
    harness.sync()
    assert len(sent) == (2 if prepared else 1)
    assert {chain.name.split("-", 2)[2] for chain in sent[0].new_chains} == prepared
    written = {chain.name for part in sent for chain in (*part.new_chains, *part.chains)}
    assert {"cluster", "cluster-known"} <= {name.split("-", 2)[2] for name in written if name.startswith("sticky-")}


def test_flapping_endpoint_gets_an_old_index_back(namespace: Namespace) -> None:
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("web", **STICKY))
    for _ in range(100):
        for numbers in ([11, 12], [12]):
            harness.apply(*slices("web", numbers))
            harness.sync()
            clock.now += 10
    assert _slots(harness) <= MAX_RESERVED_INDEXES_PER_ENDPOINT + 2


def test_index_is_free_when_all_clients_have_expired(namespace: Namespace) -> None:
    """Earlier, the new endpoint would inherit clients of the removed one."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    short = STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
    harness.apply(service("web", **short), *slices("web", [11, 12]))
    harness.sync()
    harness.apply(*slices("web", [12]))
    harness.sync()
    clock.now += 59
    harness.apply(*slices("web", [12, 13]))
    harness.sync()
    assert _indexes(harness) == {1, 2}
    clock.now += 2
    harness.apply(*slices("web", [12, 13, 14]))
    harness.sync()
    assert _indexes(harness) == {0, 1, 2}


@pytest.mark.parametrize("family", list(Family))
def test_restart_restores_numbers_and_indexes(namespace: Namespace, family: Family) -> None:
    """It sends nothing, and reserved indexes stay unused, even the last one."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    harness.apply(*slices("web", [11, 12]))
    harness.sync()
    second = KernelHarness(namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    assert not second.last_transaction(family).added
    assert not second.last_transaction(family).removed
    second.apply(*slices("web", [11, 12, 14]))
    second.sync()
    sent = second.last_transaction(family)
    assert not sent.new_chains
    assert [chain.name.split("-", 2)[2] for chain in sent.chains] == ["cluster-known", "cluster"]
    ((_, index),) = sent.added[STICKY_ENDPOINTS]
    assert index == 3


@pytest.mark.parametrize("how", ["notified", "found at a restart"])
def test_affinity_set_of_wrong_type_is_replaced_with_the_table(namespace: Namespace, how: str) -> None:
    """The other program had to empty the chains that use the set."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("web", **STICKY), *slices("web", [11]), service("plain", 20), *slices("plain", [12]))
    harness.sync()
    before = harness.listing()
    chains = [name for name in before.rule_counts if name.startswith("sticky-")]
    edit = [f"flush chain ip knft {name}" for name in chains]
    edit += [
        "delete set ip knft affinity",
        "add set ip knft affinity { type inet_service; flags dynamic,timeout; elements = { 80 timeout 1h }; }",
    ]
    namespace.run(["nft", "-f", "-"], stdin="\n".join(edit))
    if how == "notified":
        harness.proxiers[Family.IPV4].invalidate(Invalidation(declarations=True))
    else:
        harness = _restart(harness, clock)
    report = harness.sync()[Family.IPV4]
    assert (report.quarantined, report.next_sync_within) == ({}, None)
    assert (before.rule_counts, before.contents) == (harness.listing().rule_counts, harness.listing().contents)


def test_chain_used_by_a_foreign_rule_is_kept_without_comparison(namespace: Namespace) -> None:
    """Its deletion is retried with backoff; other chains are deleted."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    local: dict[str, Any] = {"externalTrafficPolicy": "Local", "node_port": 30080}
    harness.apply(service("web", **STICKY, **local), *slices("web", [11, 12]))
    harness.sync()
    (needed,) = [name for name in harness.listing().rule_counts if name.endswith("-external") and "sticky" in name]
    namespace.run(["nft", "-f", "-"], stdin=f"add chain ip knft debug\nadd rule ip knft debug goto {needed}")
    harness.apply(service("web", **STICKY), *slices("web", []))
    harness.sync()
    port, pauses = harness.checked_tables[Family.IPV4], []
    reads = port.reads
    for _ in range(5):
        again_within = harness.sync()[Family.IPV4].next_sync_within
        assert again_within is not None
        pauses.append(round(again_within))
        clock.now += again_within
    assert pauses == [1, 2, 4, 8, 16]
    assert reads == port.reads
    assert {name for name, rules in _sticky_chains(harness).items() if not rules} == {"external"}
    namespace.run(["nft", "-f", "-"], stdin="flush chain ip knft debug\ndelete chain ip knft debug")
    assert harness.sync()[Family.IPV4].next_sync_within is None
    assert _sticky_chains(harness) == {}
