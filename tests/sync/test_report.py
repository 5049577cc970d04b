"""The line about a sync in the log, and the line about foreign objects."""

from knft.families import Family
from knft.nft.objects import NamedObject
from knft.nft.transaction import Transaction
from knft.sync.foreign_objects import describe
from knft.sync.report import SyncCounters
from tests.support.kernel_harness import service, slices
from tests.sync.memory_harness import MemoryHarness


def test_report_counts_what_was_sent() -> None:
    harness = MemoryHarness()
    first = harness.sync()
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    added = harness.sync()
    harness.delete("Service", "web")
    removed = harness.sync()
    assert (first.family, first.is_full, first.service_ports) == (Family.IPV4, True, 0)
    # The verdict, two endpoints, the cluster IP and the hairpin element; pools of one kind.
    assert (added.is_full, added.service_ports, added.elements_added, added.elements_removed) == (False, 1, 5, 0)
    assert added.chains_written == 64
    assert (removed.service_ports, removed.elements_added, removed.elements_removed) == (1, 0, 5)
    assert removed.chains_written == 0


def test_report_as_one_line() -> None:
    harness = MemoryHarness()
    harness.apply(service("web"), *slices("web", [11, 12]))
    assert str(harness.sync()).startswith("IPv4: full sync of 1 Service ports in 0.0 ms")
    harness.apply(*slices("web", [11, 13]))

    def take_time(_: Transaction) -> None:
        harness.now += 0.25

    harness.table.on_commit = take_time
    assert str(harness.sync()) == (
        "IPv4: partial sync of 1 Service ports in 250.0 ms (250.0 ms in the kernel): "
        "1 elements added, 1 removed, 0 chains written"
    )


def test_counters_without_changes() -> None:
    assert not SyncCounters().has_changes


def test_few_of_many_foreign_objects_are_named() -> None:
    objects = [NamedObject("set", f"s{number}") for number in range(7)]
    assert describe(objects[:2]) == "set s0, set s1"
    assert describe(objects[:5]) == "set s0, set s1, set s2, set s3, set s4"
    assert describe(objects[5::-1]) == "set s0, set s1, set s2, set s3, set s4 and 1 more"
