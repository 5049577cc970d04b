"""SyncTotalsObserver: the sums of syncs and latencies from which ``knft top`` computes its rates."""

from datetime import UTC, datetime

from knft.control.messages import SyncTotals
from knft.families import Family
from knft.serve.kernel_counters import READ_SECONDS
from knft.serve.sync_totals import SyncTotalsObserver
from tests.support.fake_timestamps import FakeTimestamps
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness


def test_syncs_and_the_latency_of_a_change_are_added_up() -> None:
    """Time passes only in commits and before the last sync; an earlier answer keeps its numbers."""
    clock, harness = FakeTimestamps(), MemoryHarness()
    totals = SyncTotalsObserver(clock)

    def pass_time(seconds: float) -> None:
        harness.now += seconds
        clock.pass_time(seconds)

    harness.table.on_commit = lambda _: pass_time(0.25)
    harness.apply(service("web"), *slices("web", [1]))
    totals.sync_succeeded(harness.sync(), harness.state)
    first = totals.read(None)
    totals.sync_failed(Family.IPV4, 0.5, "refused for the test")
    changed = slices("web", [2])[0]
    triggered = datetime.fromtimestamp(clock.seconds, UTC).isoformat().replace("+00:00", "Z")
    changed["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": triggered}
    harness.apply(changed)
    pass_time(2)
    totals.sync_succeeded(harness.sync(), harness.state)

    last = totals.read(None)
    assert first.syncs == {"IPv4": SyncTotals(1, 0, 0.25), "IPv6": SyncTotals()}
    assert last.syncs == {"IPv4": SyncTotals(3, 1, 1.0, 1, 2.25), "IPv6": SyncTotals()}
    assert (last.asked - first.asked, last.interval) == (2.25, READ_SECONDS)
    assert (last.is_counting, last.read, last.frontends) == (False, None, ())
