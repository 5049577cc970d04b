"""Chains of sticky Service ports: numbered for life, emptied when unwanted, deleted a second later, known at a restart.

Kernels before 6.2 refuse to delete a chain in the transaction that drops the last element pointing at it.
"""

from typing import Any

import pytest

from knft.model.names import Family
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS
from knft.render.numbering import FLAPS
from knft.sync.doubts import Doubt
from tests.kernel.harness import KernelHarness, service, slices
from tests.kernel.poison import Clock
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

HOUR = 3600.0
STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}


def _sticky_chains(harness: KernelHarness) -> dict[str, int]:
    """Return the sticky port's chains without its number, with the number of their rules."""
    chains = harness.held().chains
    return {name.split("-", 2)[2]: count for name, count in chains.items() if name.startswith("sticky-")}


def _restart(harness: KernelHarness, clock: Clock) -> KernelHarness:
    """Return a new process on the same kernel, that has been told of the same objects, not yet synced."""
    second = KernelHarness(harness.namespace, timer=clock)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


def _number(harness: KernelHarness) -> int | str:
    """Return the number of the only sticky port."""
    ((_, (number,)),) = [place for place in harness.held().contents.entries if place[0] == STICKY_PORTS]
    return number


def _notes(harness: KernelHarness) -> int:
    return sum(container == STICKY_PORTS for container, _ in harness.held().contents.entries)


def _indexes(harness: KernelHarness) -> set[int]:
    """Return the indexes that the only sticky port's endpoints have."""
    arrays = harness.held().contents.arrays
    (array,) = [array for name, array in arrays.items() if name.container == STICKY_ENDPOINTS]
    return {index for index, target in enumerate(array) if target is not None}


def _slots(harness: KernelHarness) -> int:
    """Return how many indexes the only sticky port has, those that were left included."""
    ((_, size, *_),) = [
        entry.comment.split() for place, entry in harness.held().contents.entries.items() if place[0] == STICKY_PORTS
    ]
    return int(size)


def test_chains_are_emptied_at_once_and_deleted_a_second_later(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("web", node_port=30080, **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 3, "cluster": 4, "external": 1}

    # Two rules pick an endpoint where there is a gap between the indexes; there is no pool of NodePorts any more.
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


def test_a_chain_that_is_wanted_again_is_not_deleted(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    for numbers in ([11, 12], [], [11, 12]):
        harness.apply(service("web", **STICKY), *slices("web", numbers))
        harness.sync()
        clock.now += 0.4
    clock.now += 5
    harness.sync()
    assert _sticky_chains(harness) == {"cluster-known": 2, "cluster": 3}
    assert _indexes(harness) == {2, 3}


@pytest.mark.parametrize("interlude", ["affinity taken away", "Service deleted"])
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_who_is_sticky_again_starts_afresh(namespace: Namespace, interlude: str, *, restarted: bool) -> None:
    """The clients of the first time are still in the kernel: under its number, nobody else may have their indexes."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
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


def test_a_number_is_given_up_when_everybody_is_forgotten(namespace: Namespace) -> None:
    """At the first comparison after that; until then the note stays, also over a restart."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("web", **STICKY), *slices("web", [11, 12]))
    harness.sync()
    harness.delete("Service", "web")
    harness.sync()
    clock.now += HOUR
    harness.sync()
    assert _notes(harness) == 1
    second = _restart(harness, clock)
    second.sync()
    assert _notes(second) == 1
    for _ in range(3):
        clock.now += HOUR + 1
        second.sync()
    assert _notes(second) == 0


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_rollouts_over_days_need_no_more_than_two_generations(namespace: Namespace, *, restarted: bool) -> None:
    """Hourly comparisons and restarts do not prolong how long an index stays out of use."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
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
    ("external", "ahead"), [({}, set()), ({"node_port": 30080}, {"external", "cluster", "cluster-known"})], ids=str
)
def test_new_chains_are_sent_ahead_where_packets_cannot_come_back_from_them(
    namespace: Namespace, external: dict[str, Any], ahead: set[str]
) -> None:
    """Two transactions take twice as long; those to a cluster IP alone come back to where they are caught."""
    harness = KernelHarness(namespace, timer=Clock())
    harness.apply(service("plain", 20, node_port=30020), *slices("plain", [12]))
    harness.sync()
    sent = harness.ports[Family.IPV4].sent
    sent.clear()
    harness.apply(service("web", **STICKY, **external), *slices("web", [11, 12]))
    harness.sync()
    assert len(sent) == (2 if ahead else 1)
    assert {chain.name.split("-", 2)[2] for chain in sent[0].made} == ahead
    new = {chain.name.split("-", 2)[2] for part in sent for chain in (*part.made, *part.chains)}
    assert new == ahead | {"cluster", "cluster-known"}


def test_an_endpoint_that_flaps_gets_an_old_index_back(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("web", **STICKY))
    for _ in range(100):
        for numbers in ([11, 12], [12]):
            harness.apply(*slices("web", numbers))
            harness.sync()
            clock.now += 10
    assert _slots(harness) <= FLAPS + 2


def test_an_index_is_free_again_when_everybody_is_forgotten(namespace: Namespace) -> None:
    """Not before: the clients of the endpoint that left would be led to the newcomer."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
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
def test_a_restart_finds_numbers_and_indexes_again(namespace: Namespace, family: Family) -> None:
    """And sends nothing; an index that was left stays unused, also when it was the last one."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    harness.apply(*slices("web", [11, 12]))
    harness.sync()
    second = KernelHarness(namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    assert not second.last(family).added
    assert not second.last(family).removed
    second.apply(*slices("web", [11, 12, 14]))
    second.sync()
    sent = second.last(family)
    assert not sent.made
    assert [chain.name.split("-", 2)[2] for chain in sent.chains] == ["cluster-known", "cluster"]
    ((_, index),) = sent.added[STICKY_ENDPOINTS]
    assert index == 3


@pytest.mark.parametrize("how", ["heard of", "found at a restart"])
def test_an_affinity_set_of_another_kind_is_replaced_with_the_table(namespace: Namespace, how: str) -> None:
    """As maps are; whoever put it there has emptied the chains that lead to it."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("web", **STICKY), *slices("web", [11]), service("plain", 20), *slices("plain", [12]))
    harness.sync()
    before = harness.held()
    chains = [name for name in before.chains if name.startswith("sticky-")]
    edit = [f"flush chain ip knft {name}" for name in chains]
    edit += [
        "delete set ip knft affinity",
        "add set ip knft affinity { type inet_service; flags dynamic,timeout; elements = { 80 timeout 1h }; }",
    ]
    namespace.run(["nft", "-f", "-"], stdin="\n".join(edit))
    if how == "heard of":
        harness.proxiers[Family.IPV4].doubt(Doubt(frozenset(chains), declarations=True))
    else:
        harness = _restart(harness, clock)
    report = harness.sync()[Family.IPV4]
    assert (report.left_out, report.again_within) == ({}, None)
    assert (before.chains, before.contents) == (harness.held().chains, harness.held().contents)


def test_a_chain_that_somebody_elses_rule_needs_is_not_deleted_and_costs_no_comparison(namespace: Namespace) -> None:
    """It is tried again after growing pauses; others are deleted all the same."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    local: dict[str, Any] = {"externalTrafficPolicy": "Local", "node_port": 30080}
    harness.apply(service("web", **STICKY, **local), *slices("web", [11, 12]))
    harness.sync()
    (needed,) = [name for name in harness.held().chains if name.endswith("-external") and "sticky" in name]
    namespace.run(["nft", "-f", "-"], stdin=f"add chain ip knft debug\nadd rule ip knft debug goto {needed}")
    harness.apply(service("web", **STICKY), *slices("web", []))
    harness.sync()
    port, pauses = harness.ports[Family.IPV4], []
    reads = port.reads
    for _ in range(5):
        again_within = harness.sync()[Family.IPV4].again_within
        assert again_within is not None
        pauses.append(round(again_within))
        clock.now += again_within
    assert pauses == [1, 2, 4, 8, 16]
    assert reads == port.reads
    assert {name for name, rules in _sticky_chains(harness).items() if not rules} == {"external"}
    namespace.run(["nft", "-f", "-"], stdin="flush chain ip knft debug\ndelete chain ip knft debug")
    assert harness.sync()[Family.IPV4].again_within is None
    assert _sticky_chains(harness) == {}
