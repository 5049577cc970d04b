"""The line about a sync in the log, and the line about foreign objects."""

import pytest

from knft.errors import KernelError, UnavailableError
from knft.families import Family
from knft.nft.objects import NamedObject
from knft.nft.transaction import Transaction
from knft.sync.foreign_objects import describe
from knft.sync.report import SyncCounters
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness


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


def test_report_sums_up_the_transactions_of_one_sync() -> None:
    """A refused Service is found by bisection, so the others are committed in several transactions."""
    harness = MemoryHarness()
    harness.apply(*(service(f"s{n}", n, sessionAffinity="ClientIP") for n in range(1, 5)))
    harness.apply(*(each for n in range(1, 5) for each in slices(f"s{n}", [10 + n])))

    def refuse(transaction: Transaction) -> None:
        harness.now += 0.25
        if any(("10.96.0.3", "tcp", 80) in added for added in transaction.added.values()):
            msg = "refused"
            raise KernelError(msg)

    harness.table.on_commit = refuse
    report = harness.sync()
    sent = harness.table.transactions
    assert len(report.quarantined) == 1
    assert report.service_ports == 3
    assert report.elements_added == sum(each.added_count for each in sent)
    assert report.chains_written == sum(len(each.new_chains) + len(each.chains) for each in sent) > 0
    assert 0.5 <= report.kernel_seconds <= 0.25 * len(sent)
    harness.table.stop_failing()
    for number in (1, 2):
        harness.delete("Service", f"s{number}")
    harness.now += 30.0
    assert harness.sync().elements_removed == sum(each.removed_count for each in sent)


def test_changes_of_a_failed_sync_are_reported_by_the_next() -> None:
    harness = MemoryHarness()
    harness.sync()
    harness.apply(service("a", 1))

    def fail(*_: object) -> None:
        msg = "timeout"
        raise UnavailableError(msg)

    harness.table.on_commit = fail
    with pytest.raises(UnavailableError):
        harness.sync()
    harness.table.stop_failing()
    harness.apply(service("b", 2))
    report = harness.sync()
    assert {name.name for name in report.changed_service_ports} == {"a", "b"}
    assert harness.sync().changed_service_ports == frozenset()


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
