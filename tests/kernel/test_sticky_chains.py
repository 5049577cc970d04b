"""Chains of sticky Service ports: numbered for life, emptied when unwanted, deleted a second later, known at a restart.

Kernels before 6.2 refuse to delete a chain in the transaction that drops the last element pointing at it.
"""

from typing import Any

import pytest

from knft.model.names import Family
from tests.kernel.harness import KernelHarness, service, slices
from tests.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _sticky_chains(harness: KernelHarness) -> dict[str, int]:
    """Return the sticky port's chains without its number, with the number of their rules."""
    chains = harness.held().chains
    return {name.split("-", 2)[2]: count for name, count in chains.items() if name.startswith("sticky-")}


def test_chains_are_emptied_at_once_and_deleted_a_second_later(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("web", node_port=30080, **STICKY), *slices("web", [11, 12, 13]))
    harness.sync()
    endpoints = {f"endpoint-{index}": 2 for index in range(3)}
    assert _sticky_chains(harness) == {**endpoints, "cluster": 4, "external": 1}

    harness.apply(*slices("web", [11, 13]))
    harness.sync()
    assert _sticky_chains(harness) == {**endpoints, "endpoint-1": 0, "cluster": 3, "external": 1}
    clock.now += 0.5
    harness.sync()
    assert "endpoint-1" in _sticky_chains(harness)
    clock.now += 0.6
    harness.sync()
    assert _sticky_chains(harness) == {"endpoint-0": 2, "endpoint-2": 2, "cluster": 3, "external": 1}

    harness.delete("Service", "web")
    harness.sync()
    assert set(_sticky_chains(harness).values()) == {0}
    clock.now += 1.1
    harness.sync()
    assert _sticky_chains(harness) == {}


def test_a_chain_that_is_wanted_again_is_not_deleted(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    for affinity in (STICKY, {}, STICKY):
        harness.apply(service("web", **affinity), *slices("web", [11]))
        harness.sync()
        clock.now += 0.4
    clock.now += 5
    harness.sync()
    assert _sticky_chains(harness) == {"endpoint-0": 2, "cluster": 2}


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
    assert set(_sticky_chains(harness)) >= {"endpoint-1", "endpoint-2"}
    assert _sticky_chains(harness).get("endpoint-0", 0) == 0
    clock.now += 2
    harness.apply(*slices("web", [12, 13, 14]))
    harness.sync()
    assert _sticky_chains(harness)["endpoint-0"] == 2


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
    written = {chain.name.split("-", 2)[2] for chain in second.last(family).chains}
    assert written == {"endpoint-3", "cluster"}
