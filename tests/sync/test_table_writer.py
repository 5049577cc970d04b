"""The TableWriter's knowledge of the table after commits that failed, on a table in memory."""

import pytest

from knft.families import Family
from knft.nft.expressions import Goto
from knft.nft.objects import ArrayName, Contents, Entry, Key
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import HAIRPIN, NO_ENDPOINT_SERVICES, SOURCE_RANGES
from knft.sync.table_writer import _removed_contents
from tests.support.kernel_harness import service, slices
from tests.support.kube_objects import port_name
from tests.support.memory_harness import MemoryHarness


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a Service."""
    harness = MemoryHarness()
    harness.apply(service("web"), *slices("web", [11, 12]))
    harness.sync()
    return harness


def test_found_wide_numbers_that_are_free_are_kept(harness: MemoryHarness) -> None:
    writer = harness.proxier._writer
    first, second, third = (port_name(service=name) for name in ("a", "b", "c"))
    writer.wide[first] = 7
    assert writer.current_wide_numbers({second: 7, third: 8}) == {first: 7, third: 8}


def _requests(harness: MemoryHarness) -> list[str]:
    """Sync; return the waits for packets, and "cleanup" or "main" for each transaction."""
    requests: list[str] = []

    def record(transaction: Transaction) -> None:
        if not transaction.is_empty:
            requests.append("main" if transaction.added or transaction.chains else "cleanup")

    harness.table.on_commit = record
    harness.table.on_wait = lambda: requests.append("wait")
    harness.sync()
    return requests


def test_endpoints_with_old_verdicts_are_removed_after_a_wait_for_packets(harness: MemoryHarness) -> None:
    harness.apply(service("web", node_port=30080, internalTrafficPolicy="Local"))
    harness.apply(*slices("web", [11, 12], local=[11, 12]))
    harness.sync()
    harness.apply(service("web", node_port=30080))
    assert _requests(harness) == ["main", "wait", "cleanup"]


def test_removal_of_a_local_endpoint_does_not_wait_for_packets(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 12], local=[12]))
    harness.sync()
    harness.apply(*slices("web", [11, 13]))
    assert _requests(harness) == ["main", "cleanup"]


def test_waiting_does_not_count_as_time_in_libnftables(harness: MemoryHarness) -> None:
    harness.apply(service("web", internalTrafficPolicy="Local"), *slices("web", [11], local=[11]))
    harness.sync()

    def wait() -> None:
        harness.now += 5.0

    harness.table.on_wait = wait
    harness.apply(service("web"))
    report = harness.sync()
    assert report.seconds == 5.0
    assert report.kernel_seconds == 0.0


def test_elements_of_a_refused_cleanup_are_recorded_by_key() -> None:
    """Their values are unknown; where only some indexes of an array remain, the others are gaps."""
    removed: dict[str, tuple[Key, ...]] = {
        "endpoints-tcp": (("10.96.0.1", 80, 2), ("10.96.0.1", 80, 0), ("10.96.0.2", 80, 0)),
        "endpoint-ids-tcp": (("10.96.0.1", 80, 0),),
        HAIRPIN: (("10.244.0.1", "10.244.0.1", "tcp", 8080),),
        SOURCE_RANGES: (("203.0.113.1", "tcp", 80, "192.0.2.0/24"),),
        NO_ENDPOINT_SERVICES: (("203.0.113.1", "tcp", 80),),
    }
    unknown = ("", 0)
    assert _removed_contents([Transaction("ip", "knft", removed=removed)], layout.containers(Family.IPV4)) == Contents(
        {(NO_ENDPOINT_SERVICES, ("203.0.113.1", "tcp", 80)): Entry(Goto(""))},
        {
            ArrayName("endpoints-tcp", ("10.96.0.1", 80)): (unknown, None, unknown),
            ArrayName("endpoints-tcp", ("10.96.0.2", 80)): (unknown,),
            ArrayName("endpoint-ids-tcp", ("10.96.0.1", 80)): (unknown,),
        },
        {(name, key) for name in (HAIRPIN, SOURCE_RANGES) for key in removed[name]},
    )
