"""The comparison with a fresh process finds wrong endpoint IDs and chains, although it does not compare the IDs."""

from collections.abc import Callable
from typing import Any

import pytest

from knft.nft.objects import Chain
from knft.sync.proxier import UNUSED_CHAINS_INTERVAL_SECONDS
from tests.support import equivalence
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.memory_table import MemoryTable
from tests.support.refused_services import refuse_address

STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}
KEYS = [("10.96.0.10", 80, 0), ("10.96.0.10", 80, 1)]


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a Service with session affinity and two frontends, and a wide one."""
    harness = MemoryHarness()
    harness.apply(service("web", 10, node_port=30080, **STICKY), *slices("web", [11, 12]))
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    local: dict[str, Any] = {"externalTrafficPolicy": "Local", "type": "LoadBalancer"}
    harness.apply(service("wide", 20, externalIPs=addresses, **local, **STICKY))
    harness.apply(*slices("wide", range(21, 51), local=[21]))
    harness.sync()
    return harness


def _wide_ids(table: MemoryTable) -> dict[Any, Any]:
    (found,) = [
        elements for name, elements in table.elements.items() if name.startswith("wide-endpoint-ids") and elements
    ]
    return found


def _change_local_id(table: MemoryTable) -> None:
    ids = _wide_ids(table)
    (local,) = [key for key in ids if key[1] == 1]
    ids[local] += 1


DAMAGE: dict[str, Callable[[MemoryTable], object]] = {
    "an ID is missing": lambda table: table.elements["endpoint-ids-tcp"].pop(KEYS[1]),
    "the first ID is missing": lambda table: table.elements["endpoint-ids-tcp"].pop(KEYS[0]),
    "there are too many": lambda table: table.elements["endpoint-ids-tcp"].update({("10.96.0.10", 80, 2): 5}),
    "two are equal": lambda table: table.elements["endpoint-ids-tcp"].update(dict.fromkeys(KEYS, 5)),
    "all are missing": lambda table: table.elements["endpoint-ids-tcp"].clear(),
    "those of another frontend differ": lambda table: table.elements["endpoint-ids-tcp"].update({KEYS[0]: 5}),
    "an ID of a wide Service port is missing": lambda table: _wide_ids(table).popitem(),
    "those of another traffic class differ": _change_local_id,
    "a chain for known clients is empty": lambda table: table.chains.update(
        {"affinity-10800-known-tcp-0": Chain("affinity-10800-known-tcp-0")}
    ),
    "a chain for known clients is missing": lambda table: table.chains.pop("affinity-10800-nodeport-known-tcp-0"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_a_difference(harness: MemoryHarness, damage: Callable[[MemoryTable], object]) -> None:
    assert harness.differences() == []
    damage(harness.table)
    assert harness.differences()


def test_other_ids_are_equivalent(harness: MemoryHarness) -> None:
    for name, elements in harness.table.elements.items():
        if "endpoint-ids" in name:
            elements.update({key: value + 7 for key, value in elements.items()})  # type: ignore[operator]
    assert harness.differences() == []


def test_frontend_that_cannot_be_removed_keeps_former_ids() -> None:
    """A random history with refused removals found this (soak, seeds 1 and 2)."""
    harness = MemoryHarness()
    harness.apply(service("web", 10, **STICKY), *slices("web", [11, 12]))
    harness.sync()
    harness.table.on_commit = refuse_address("10.96.0.10")
    for item in (service("web", 20, **STICKY), *slices("web", [12]), *slices("web", [11, 12])):
        before = harness.facts().keys()
        harness.apply(item)
        harness.now += 1.0
        assert harness.sync().orphan_error
    expected, found = harness.fresh_facts(), harness.facts()
    ids = [line for line in equivalence.difference(expected, found) if line.startswith("IDs of")]
    assert any("10.244.2.11" in line for line in ids)
    assert equivalence.difference_except_quarantined(expected, expected, found, before) == []
    assert equivalence.difference_except_quarantined(expected, expected, found, ()) != []


def test_unused_chains_are_stale(harness: MemoryHarness) -> None:
    used = harness.state.affinity_timeouts()
    assert equivalence.stale_chains(harness.table.listing(), used) == []
    harness.delete("Service", "web")
    harness.sync()
    used = harness.state.affinity_timeouts()
    assert used == {10800}
    harness.delete("Service", "wide")
    harness.sync()
    stale = equivalence.stale_chains(harness.table.listing(), harness.state.affinity_timeouts())
    assert "affinity-10800-pool-tcp-2" in stale
    harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
    harness.sync()
    assert equivalence.stale_chains(harness.table.listing(), harness.state.affinity_timeouts()) == []
