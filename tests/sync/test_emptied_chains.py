"""Chains of a wide Service port that are not needed any more: they are emptied, and deleted at once or later."""

from collections.abc import Iterable
from typing import Any

import pytest

from knft.errors import KernelError
from knft.nft.transaction import Transaction
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.old_kernel import refuse_as_before_6_2


def _wide_service(name: str, number: int) -> Iterable[dict[str, Any]]:
    addresses = [f"198.51.{number}.{last}" for last in range(1, 40)]
    return service(name, number, externalIPs=addresses), *slices(name, range(101, 131))


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a wide Service, and another one."""
    harness = MemoryHarness()
    harness.apply(*_wide_service("wide", 10), service("web", 20), *slices("web", [11, 12]))
    harness.sync()
    assert len(_wide_chains(harness)) == 2
    return harness


def _wide_chains(harness: MemoryHarness) -> set[str]:
    return {name for name in harness.table.chains if name.startswith("wide-")}


def test_refused_deletion_of_emptied_chains_is_counted_and_retried_later(harness: MemoryHarness) -> None:
    """A foreign rule may lead to them."""

    def refuse(transaction: Transaction) -> None:
        if transaction.deleted_chains:
            msg = "Device or resource busy"
            raise KernelError(msg)

    harness.table.on_commit = refuse
    harness.delete("Service", "wide")
    assert harness.sync().refused_removals == 0
    harness.now += 1.1
    report = harness.sync()
    assert report.refused_removals == 1
    assert report.next_sync_within is not None
    assert report.next_sync_within > 1
    harness.now += report.next_sync_within
    harness.table.stop_failing()
    assert harness.sync().next_sync_within is None
    assert not _wide_chains(harness)


def test_chains_are_deleted_with_the_last_verdict(harness: MemoryHarness) -> None:
    harness.delete("Service", "wide")
    assert harness.sync().next_sync_within is None
    assert harness.last_transaction.removed
    assert not _wide_chains(harness)
    assert harness.differences() == []


def test_kernel_before_6_2_is_asked_once_to_delete_chains_with_the_last_verdict(harness: MemoryHarness) -> None:
    """Refused deletions do not make the sync a full one."""
    harness.table.on_commit = refuse_as_before_6_2
    harness.delete("Service", "wide")
    assert not harness.sync().is_full
    assert harness.differences() == []
    harness.apply(*_wide_service("other", 70))
    harness.sync()
    tried: list[bool] = []
    harness.table.on_commit = lambda transaction: tried.append(bool(transaction.deleted_chains))
    harness.delete("Service", "other")
    harness.sync()
    assert tried == [False]


def test_emptied_chains_are_deleted_a_second_later(harness: MemoryHarness) -> None:
    """Kernels before 6.2 refuse to delete a chain until they have freed the element that led to it."""
    harness.table.on_commit = refuse_as_before_6_2
    harness.delete("Service", "wide")
    report = harness.sync()
    emptied = _wide_chains(harness)
    assert len(emptied) == 2
    assert not any(harness.table.chains[name].rules for name in emptied)
    assert report.next_sync_within == pytest.approx(1.1)
    harness.now += 1.0
    assert harness.sync().next_sync_within == pytest.approx(0.1)
    assert emptied <= harness.table.chains.keys()
    harness.now += 0.1
    assert harness.sync().next_sync_within is None
    assert not emptied & harness.table.chains.keys()


def test_emptied_chains_that_are_found_are_deleted_a_second_later(harness: MemoryHarness) -> None:
    harness.table.on_commit = refuse_as_before_6_2
    harness.delete("Service", "wide")
    harness.sync()
    second = harness.restarted()
    assert second.sync().next_sync_within == pytest.approx(1.1)
    second.now += 1.1
    second.sync()
    assert not _wide_chains(harness)


@pytest.mark.parametrize("has_restarted", [False, True])
def test_chain_that_is_needed_again_is_not_deleted(harness: MemoryHarness, *, has_restarted: bool) -> None:
    harness.table.on_commit = refuse_as_before_6_2
    harness.delete("Service", "wide")
    harness.sync()
    harness.now += 0.4
    if has_restarted:
        harness = harness.restarted()
        harness.sync()
    harness.apply(*_wide_service("wide", 10))
    harness.sync()
    harness.now += 5.0
    assert harness.sync().next_sync_within is None
    assert len(_wide_chains(harness)) == 2
    assert harness.differences() == []
