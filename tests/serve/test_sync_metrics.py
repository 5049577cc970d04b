"""Tests of metrics about syncs, with real syncs into a kernel and a fake clock."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from knft.errors import KernelError
from knft.families import Family
from knft.nft.objects import NamedObject
from knft.sync.invalidation import Invalidation
from knft.sync.proxier import UNUSED_CHAINS_INTERVAL_SECONDS
from tests.serve.metric_values import RULES, changes_metrics, slices_changed_ago, value
from tests.serve.node import MonitoredNode
from tests.support.kernel_harness import service, slices
from tests.support.refused_services import refuse_address

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


@changes_metrics(
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "knft_sync_kernel_duration_seconds",
)
def test_full_and_partial_syncs_are_timed(node: MonitoredNode) -> None:
    """The first sync is full, the others are partial. Time passes only during kernel calls."""
    for port in node.checked_tables.values():
        port.on_commit = lambda _: setattr(node.sync_clock, "now", node.sync_clock.now + 0.003)
    node.apply_and_sync(service("web"), *slices("web", [1]))
    node.apply_and_sync(*slices("web", [2]))
    node.apply_and_sync(*slices("web", [3]))
    for family in Family:
        assert value(node, f"{RULES}duration_seconds_count", family) == 3
        assert value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_count", family) == 1
        assert value(node, "kubeproxy_sync_partial_proxy_rules_duration_seconds_count", family) == 2
        assert value(node, "knft_sync_kernel_duration_seconds_count", family) == 3
        part = value(node, "kubeproxy_sync_partial_proxy_rules_duration_seconds_sum", family)
        full = value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_sum", family)
        assert part == pytest.approx(0.006)
        assert value(node, f"{RULES}duration_seconds_sum", family) == pytest.approx(full + part)
        assert value(node, f"{RULES}duration_seconds_bucket", family, le="0.002") == 0
        assert value(node, f"{RULES}duration_seconds_bucket", family, le="+Inf") == 3
        assert value(node, "knft_sync_kernel_duration_seconds_sum", family) == pytest.approx(full + part)


def test_kernel_duration_is_part_of_sync_duration(node: MonitoredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for proxier in node.proxiers.values():
        real = proxier.sync
        monkeypatch.setattr(proxier, "sync", lambda real=real: replace(real(), seconds=0.5, kernel_seconds=0.25))
    node.apply_and_sync(service("web"))
    assert value(node, f"{RULES}duration_seconds_sum", V4) == 0.5
    assert value(node, "knft_sync_kernel_duration_seconds_sum", V4) == 0.25


@changes_metrics(f"{RULES}last_timestamp_seconds", f"{RULES}last_queued_timestamp_seconds")
def test_last_queued_and_last_successful_sync_have_timestamps(node: MonitoredNode) -> None:
    """The time when a sync was queued, and the time when one succeeded."""
    began = node.clock.seconds
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began
    node.clock.pass_time(10)
    node.apply(service("web"))
    node.clock.pass_time(5.5)
    node.apply_and_sync()
    for family in Family:
        assert value(node, f"{RULES}last_queued_timestamp_seconds", family) == began + 10
        assert value(node, f"{RULES}last_timestamp_seconds", family) == began + 15.5
    node.clock.pass_time(100)
    for port in node.checked_tables.values():
        port.refused_commits = port.refused_reads = 1000
    node.apply(service("more", 20))
    assert not node.daemon.sync()
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began + 115.5
    assert value(node, f"{RULES}last_timestamp_seconds", V4) == began + 15.5


@changes_metrics("kubeproxy_network_programming_duration_seconds")
def test_network_programming_latency_counts_from_the_trigger_time(node: MonitoredNode) -> None:
    """Latency starts at the trigger time in the slice; changes of failed syncs count when a sync succeeds."""
    name = "kubeproxy_network_programming_duration_seconds"
    node.apply_and_sync(service("web"), *slices_changed_ago(node, "web", [1], 0.4))
    for port in node.checked_tables.values():
        port.refused_commits = port.refused_reads = 1000
    node.apply(*slices_changed_ago(node, "web", [1, 2], 1))
    node.clock.pass_time(61)
    assert not node.daemon.sync()
    for port in node.checked_tables.values():
        port.stop_failing()
    node.apply_and_sync()
    for family in Family:
        counts = [value(node, f"{name}_bucket", family, le=bound) for bound in ("0.25", "0.5", "60", "65", "+Inf")]
        assert counts == [0, 1, 1, 2, 2]
        assert value(node, f"{name}_sum", family) == pytest.approx(62.4)


def test_programming_latency_is_logged(node: MonitoredNode, caplog: pytest.LogCaptureFixture) -> None:
    """One line for each sync that has changes with trigger times (docs/behaviour/tracking.md#programming-latency)."""
    caplog.set_level("DEBUG", "knft.latency")
    node.apply_and_sync(
        service("web"),
        *slices_changed_ago(node, "web", [1], 0.4),
        service("more", 2),
        *slices_changed_ago(node, "more", [1], 3),
    )
    node.apply_and_sync(service("web", 5))
    message = "programmed 2 endpoint changes; latency: newest change 0.400 s, oldest change 3.000 s"
    assert caplog.messages == [f"IPv4: {message}", f"IPv6: {message}"]


@changes_metrics(
    f"{RULES}nftables_sync_failures_total",
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
)
def test_failed_syncs_are_counted_and_timed(node: MonitoredNode) -> None:
    """Failed syncs count for their family, and their duration too."""
    node.apply_and_sync(service("web"))
    node.checked_tables[V4].refused_commits = node.checked_tables[V4].refused_reads = 1000
    node.apply(*slices("web", [1]))
    assert not node.daemon.sync()
    assert not node.daemon.sync()
    name = f"{RULES}nftables_sync_failures_total"
    assert value(node, name, V4) == 2
    assert f'{name}{{ip_family="IPv6"}}' not in node.scrape()
    assert value(node, f"{RULES}duration_seconds_count", V4) == 3
    assert value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_count", V4) == 3
    node.checked_tables[V4].stop_failing()
    node.apply_and_sync()
    assert value(node, name, V4) == 2


@changes_metrics(f"{RULES}nftables_cleanup_failures_total", "knft_removal_refused")
def test_refused_removals_of_orphans_are_counted_once(node: MonitoredNode) -> None:
    """Each refusal counts once, however many syncs find the orphans."""
    name = f"{RULES}nftables_cleanup_failures_total"
    node.apply_and_sync(service("gone", 77), *slices("gone", [11]), service("web", 8))
    node.delete("Service", "gone")
    node.checked_tables[V4].on_commit = refuse_address("10.96.0.77")
    node.apply_and_sync()
    assert (
        value(node, name, V4),
        value(node, "knft_removal_refused", V4),
        value(node, "knft_removal_refused", V6),
    ) == (1, 1, 0)
    node.apply_and_sync(*slices("web", [1]))
    assert value(node, name, V4) == 1
    node.sync_clock.now += 40
    node.apply_and_sync()
    assert (value(node, name, V4), value(node, "knft_removal_refused", V4)) == (2, 1)
    node.checked_tables[V4].stop_failing()
    node.sync_clock.now += 4000
    node.apply_and_sync()
    assert (value(node, name, V4), value(node, "knft_removal_refused", V4)) == (2, 0)


@changes_metrics("knft_foreign_objects_removed_total", "knft_repair_failed")
def test_foreign_objects_are_counted_when_they_are_gone(node: MonitoredNode) -> None:
    names = ("knft_foreign_objects_removed_total", "knft_repair_failed")
    node.apply_and_sync(service("web", 8))
    assert [value(node, name, V4) for name in names] == [0, 0]
    node.namespace.run(["nft", "add chain ip knft foreign; add counter ip knft mine"])

    def refuse(objects: Sequence[NamedObject]) -> None:
        if NamedObject("counter", "mine") in objects:
            msg = "refused for the test"
            raise KernelError(msg)

    node.checked_tables[V4].on_delete = refuse
    node.proxiers[V4].invalidate(Invalidation(declarations=True))
    node.apply_and_sync()
    assert [value(node, name, V4) for name in names] == [1, 1]
    node.checked_tables[V4].stop_failing()
    node.sync_clock.now += 4000
    node.apply_and_sync()
    assert [value(node, name, V4) for name in names] == [2, 0]
    assert [value(node, name, V6) for name in names] == [0, 0]


def test_chain_that_cannot_be_deleted_is_a_cleanup_failure(node: MonitoredNode) -> None:
    """A foreign rule jumps to a chain for a timeout that no Service has any more."""
    node.apply_and_sync(service("web", sessionAffinity="ClientIP"), *slices("web", [1]))
    chain = next(name for name in node.listing().rule_counts if name.startswith("affinity-"))
    node.namespace.run(["nft", f"add chain ip knft theirs; add rule ip knft theirs jump {chain}"])
    node.delete("Service", "web")
    node.apply_and_sync()
    node.sync_clock.now += UNUSED_CHAINS_INTERVAL_SECONDS
    node.apply_and_sync()
    node.sync_clock.now += 2
    node.apply_and_sync()
    assert value(node, f"{RULES}nftables_cleanup_failures_total", V4) == 1
    assert f'{RULES}nftables_cleanup_failures_total{{ip_family="IPv6"}}' not in node.scrape()


@changes_metrics("knft_elements_sent_total", "knft_chains_written_total", "knft_service_ports")
def test_sent_elements_and_chains_are_counted(node: MonitoredNode) -> None:
    """Elements and chains are counted as they are sent."""

    def sent(family: Family) -> list[float]:
        return [value(node, "knft_elements_sent_total", family, operation=operation) for operation in ("add", "remove")]

    node.apply_and_sync(service("web"), *slices("web", [1, 2, 3]))
    first = sent(V4)
    assert first[0] > 4
    assert first[1] == 0
    node.apply_and_sync(*slices("web", [1, 2, 9]))
    assert sent(V4) == [first[0] + 1, 1]  # One endpoint replaces another.
    assert value(node, "knft_service_ports", V4) == 1
    chains = value(node, "knft_chains_written_total", V4)
    node.apply_and_sync(service("sticky", 20, sessionAffinity="ClientIP"), *slices("sticky", [1]))
    assert value(node, "knft_chains_written_total", V4) > chains > 5
    assert value(node, "knft_service_ports", V6) == 2


@changes_metrics("knft_hashed_service_ports")
def test_service_ports_with_consistent_hashing_are_counted(node: MonitoredNode) -> None:
    """ClientIP affinity takes precedence over the annotation, so such a Service port does not count."""
    hashed, sticky = service("hashed", 20), service("sticky", 21, sessionAffinity="ClientIP")
    for item in (hashed, sticky):
        item["metadata"]["annotations"] = {"knft.dev/load-balancing": "source-hash"}
    node.apply_and_sync(hashed, *slices("hashed", [1]), sticky, *slices("sticky", [1]))
    assert [value(node, "knft_hashed_service_ports", family) for family in Family] == [1, 1]
    node.apply_and_sync(service("hashed", 20))
    assert value(node, "knft_hashed_service_ports", V4) == 0
    node.apply_and_sync(hashed)
    assert value(node, "knft_hashed_service_ports", V4) == 1
