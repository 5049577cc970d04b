"""The metrics of syncs, each made to move by real ones into a kernel. Time is the test's."""

import pytest
from msgspec.structs import replace

from knft.model.names import Family
from tests.kernel.harness import service, slices
from tests.kernel.poison import refusing
from tests.serve.moving import RULES, moves, timed, value
from tests.serve.node import ServedNode

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


@moves(
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "knft_sync_kernel_duration_seconds",
)
def test_syncs_are_timed(node: ServedNode) -> None:
    """The first compares everything; the others send what has changed. The clock passes in the kernel alone."""
    for port in node.ports.values():
        port.meddle = lambda _: setattr(node.timer, "now", node.timer.now + 0.003)
    node.synced(service("web"), *slices("web", [1]))
    node.synced(*slices("web", [2]))
    node.synced(*slices("web", [3]))
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


def test_the_kernels_part_of_a_sync_is_not_all_of_it(node: ServedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for proxier in node.proxiers.values():
        real = proxier.sync
        monkeypatch.setattr(proxier, "sync", lambda real=real: replace(real(), seconds=0.5, kernel_seconds=0.25))
    node.synced(service("web"))
    assert value(node, f"{RULES}duration_seconds_sum", V4) == 0.5
    assert value(node, "knft_sync_kernel_duration_seconds_sum", V4) == 0.25


@moves(f"{RULES}last_timestamp_seconds", f"{RULES}last_queued_timestamp_seconds")
def test_when_the_last_sync_was(node: ServedNode) -> None:
    """And when one was asked for, which is before that."""
    began = node.clock.seconds
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began
    node.clock.pass_time(10)
    node.apply(service("web"))
    node.clock.pass_time(5.5)
    node.synced()
    for family in Family:
        assert value(node, f"{RULES}last_queued_timestamp_seconds", family) == began + 10
        assert value(node, f"{RULES}last_timestamp_seconds", family) == began + 15.5
    node.clock.pass_time(100)
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 1000
    node.apply(service("more", 20))
    assert not node.daemon.sync()
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began + 115.5
    assert value(node, f"{RULES}last_timestamp_seconds", V4) == began + 15.5


@moves("kubeproxy_network_programming_duration_seconds")
def test_the_latency_of_network_programming(node: ServedNode) -> None:
    """From the moment that is written in the slice; those of failed syncs count when one succeeds."""
    name = "kubeproxy_network_programming_duration_seconds"
    node.synced(service("web"), *timed(node, "web", [1], 0.4))
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 1000
    node.apply(*timed(node, "web", [1, 2], 1))
    node.clock.pass_time(61)
    assert not node.daemon.sync()
    for port in node.ports.values():
        port.heal()
    node.synced()
    for family in Family:
        counts = [value(node, f"{name}_bucket", family, le=bound) for bound in ("0.25", "0.5", "60", "65", "+Inf")]
        assert counts == [0, 1, 1, 2, 2]
        assert value(node, f"{name}_sum", family) == pytest.approx(62.4)


def test_how_old_changes_were_is_logged(node: ServedNode, caplog: pytest.LogCaptureFixture) -> None:
    """A line a sync, where A.8 has one for each change; none where no change says when it was made."""
    caplog.set_level("DEBUG", "knft.latency")
    node.synced(service("web"), *timed(node, "web", [1], 0.4), service("more", 2), *timed(node, "more", [1], 3))
    node.synced(service("web", 5))
    words = "2 changes of endpoints in force, the last after 0.400 s, the first after 3.000 s"
    assert caplog.messages == [f"IPv4: {words}", f"IPv6: {words}"]


@moves(
    f"{RULES}nftables_sync_failures_total",
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
)
def test_syncs_that_fail(node: ServedNode) -> None:
    """Of the family that they are about; they take their time as well."""
    node.synced(service("web"))
    node.ports[V4].refuse = node.ports[V4].refuse_reads = 1000
    node.apply(*slices("web", [1]))
    assert not node.daemon.sync()
    assert not node.daemon.sync()
    name = f"{RULES}nftables_sync_failures_total"
    assert value(node, name, V4) == 2
    assert f'{name}{{ip_family="IPv6"}}' not in node.scrape()
    assert value(node, f"{RULES}duration_seconds_count", V4) == 3
    assert value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_count", V4) == 3
    node.ports[V4].heal()
    node.synced()
    assert value(node, name, V4) == 2


@moves(f"{RULES}nftables_cleanup_failures_total", "knft_unswept")
def test_what_cannot_be_removed(node: ServedNode) -> None:
    """Each refusal counts once, however many syncs see that the rest is still there."""
    name = f"{RULES}nftables_cleanup_failures_total"
    node.synced(service("gone", 77), *slices("gone", [11]), service("web", 8))
    node.delete("Service", "gone")
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4), value(node, "knft_unswept", V6)) == (1, 1, 0)
    node.synced(*slices("web", [1]))
    assert value(node, name, V4) == 1
    node.timer.now += 40
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4)) == (2, 1)
    node.ports[V4].heal()
    node.timer.now += 4000
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4)) == (2, 0)


def test_chains_that_cannot_be_deleted_are_cleanups_that_failed(node: ServedNode) -> None:
    """Somebody's rule leads to one that a sticky Service port had."""
    node.synced(service("web", sessionAffinity="ClientIP"), *slices("web", [1]))
    chain = next(name for name in node.held().chains if name.startswith("sticky-"))
    node.namespace.run(["nft", f"add chain ip knft theirs; add rule ip knft theirs jump {chain}"])
    node.delete("Service", "web")
    node.synced()
    node.timer.now += 2
    node.synced()
    assert value(node, f"{RULES}nftables_cleanup_failures_total", V4) == 1
    assert f'{RULES}nftables_cleanup_failures_total{{ip_family="IPv6"}}' not in node.scrape()


@moves("knft_elements_sent_total", "knft_chains_written_total", "knft_service_ports")
def test_what_was_sent(node: ServedNode) -> None:
    """As many elements as the kernel has at the end, all in all."""

    def sent(family: Family) -> list[float]:
        return [value(node, "knft_elements_sent_total", family, operation=operation) for operation in ("add", "remove")]

    node.synced(service("web"), *slices("web", [1, 2, 3]))
    first = sent(V4)
    assert first[0] > 4
    assert first[1] == 0
    node.synced(*slices("web", [1, 2, 9]))
    assert sent(V4) == [first[0] + 1, 1]  # One endpoint in the place of another.
    assert value(node, "knft_service_ports", V4) == 1
    chains = value(node, "knft_chains_written_total", V4)
    node.synced(service("sticky", 20, sessionAffinity="ClientIP"), *slices("sticky", [1]))
    assert value(node, "knft_chains_written_total", V4) > chains > 5
    assert value(node, "knft_service_ports", V6) == 2
