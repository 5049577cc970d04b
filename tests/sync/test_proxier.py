"""The Proxier on a table in memory: what it sends, and what it knows after requests that failed."""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from knft.errors import KernelError
from knft.nft.transaction import Transaction
from knft.render import wide
from knft.render.names import HAIRPIN
from tests.support.kernel_harness import service, slices
from tests.sync.memory_harness import MemoryHarness
from tests.sync.memory_history import MemoryHistory


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    harness = MemoryHarness()
    harness.apply(
        service("web", node_port=30080),
        *slices("web", [11, 12, 13], local=[12]),
        service("sticky", 30, sessionAffinity="ClientIP"),
        *slices("sticky", [21, 22], local=[21]),
    )
    harness.sync()
    return harness


@settings(max_examples=8, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False, note_method_calls=False), factor=st.sampled_from((1, wide.COPIES_FACTOR)))
def test_any_history_ends_with_the_table_of_a_fresh_start(rng: Random, factor: int) -> None:
    """With a factor of 1, small Services become wide, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "COPIES_FACTOR", factor)
        MemoryHistory(rng).run(60)


def test_bug_after_the_main_phase_makes_the_next_sync_a_full_one(harness: MemoryHarness) -> None:
    """The writer has recorded a removal that was not made."""

    def fail(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed:
            msg = "a bug, for the test"
            raise ZeroDivisionError(msg)

    harness.table.on_commit = fail
    harness.apply(*slices("web", [11, 13]))
    with pytest.raises(ZeroDivisionError):
        harness.sync()
    harness.table.stop_failing()
    assert harness.sync().is_full
    assert harness.differences() == []


def test_refused_partial_sync_becomes_a_full_one(harness: MemoryHarness) -> None:
    reads, refusals = harness.table.reads, [KernelError("refused")]

    def refuse_once(_: Transaction) -> None:
        if refusals:
            raise refusals.pop()

    harness.table.on_commit = refuse_once
    harness.apply(*slices("web", [11, 13]))
    report = harness.sync()
    assert report.is_full
    assert (report.quarantined, report.orphan_error) == ({}, "")
    assert harness.table.reads == reads + 1
    assert harness.differences() == []
