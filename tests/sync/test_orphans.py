"""Orphans: stale objects whose removal the kernel refuses are removed later, and needed objects stay."""

import pytest

from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.plan import ServicePlan
from knft.nft.objects import Key
from knft.render import fragment
from knft.sync import prepare
from knft.sync.invalidation import Invalidation
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import KernelHarness, contents_of_fresh_start, restarted, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.refused_services import apply_many_services, refuse_address

pytestmark = pytest.mark.kernel
V4 = Family.IPV4
PAUSE = 30.0


def _elements(harness: KernelHarness, address: str = "") -> set[tuple[str, Key]]:
    """Return the elements about an address, or all elements and chains for affinity."""
    listing = harness.listing()
    places = {*listing.contents.entries, *listing.contents.members}
    places |= {(name.container, name.prefix) for name in listing.contents.arrays}
    places |= {(name, ()) for name, rules in listing.rule_counts.items() if "affinity" in name and rules}
    return {place for place in places if address in place[1]} if address else places


@pytest.mark.parametrize("others", [True, False], ids=["among others", "the last one"])
def test_refused_removal_of_service_is_retried(namespace: Namespace, *, others: bool) -> None:
    """A deleted Service must not stay in the table because the kernel refused its removal once."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    if others:
        apply_many_services(harness)
    harness.apply(service("gone", 77), *slices("gone", [11]))
    harness.sync()
    checked = harness.checked_tables[V4]
    harness.delete("Service", "gone")
    checked.on_commit = refuse_address("10.96.0.77")
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        report = harness.sync()[V4]
        assert (report.quarantined, report.orphan_error, report.next_sync_within) == ({}, "refused for the test", pause)
        assert _elements(harness, "10.96.0.77")
        clock.now += pause
    checked.on_commit = lambda _: None
    report = harness.sync()[V4]
    assert (report.orphan_error, report.next_sync_within) == ("", None)
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_orphans_are_logged_once(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("gone", 77), *slices("gone", [11]))
    harness.daemon.sync()
    harness.delete("Service", "gone")
    harness.checked_tables[V4].on_commit = refuse_address("10.96.0.77")
    for _ in range(3):
        assert harness.daemon.sync()
        clock.now += 4000
    line = "IPv4: stale objects could not be removed; knft retries the removal: refused for the test"
    assert caplog.messages.count(line) == 1


def test_audit_reports_orphans(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, clock=FakeClock())
    apply_many_services(harness)
    harness.sync()
    harness.delete("Service", "web-7")
    harness.checked_tables[V4].on_commit = refuse_address("10.96.0.7")
    harness.sync()
    assert harness.proxiers[V4].audit(harness.tables[V4]) == len(_elements(harness, "10.96.0.7")) + 1  # Two endpoints.
    harness.checked_tables[V4].on_commit = lambda _: None
    harness.sync()
    assert harness.proxiers[V4].audit(harness.tables[V4]) == 0
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_audit_accepts_elements_of_quarantined_service_port(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, clock=FakeClock())
    apply_many_services(harness)
    harness.sync()
    harness.apply(*slices("web-7", [51]))
    harness.checked_tables[V4].on_commit = refuse_address("10.96.0.7")
    assert harness.sync()[V4].quarantined
    assert harness.proxiers[V4].audit(harness.tables[V4]) == 0


STICKY = {"sessionAffinity": "ClientIP"}
SERVICE_KINDS = {
    "plain": service("web", 7, node_port=30080, externalIPs=["203.0.113.7"]),
    "sticky": service("web", 7, node_port=30080, **STICKY),
    "with source ranges": service("web", 7, type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/24"])
    | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}},
}


@pytest.mark.parametrize("kind", SERVICE_KINDS)
@pytest.mark.parametrize("after_restart", [True, False], ids=["at a start", "later"])
@pytest.mark.parametrize("endpoint_numbers", [[11, 12], []], ids=["with endpoints", "without"])
def test_service_port_with_rendering_error_keeps_its_elements(
    namespace: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    endpoint_numbers: list[int],
    *,
    after_restart: bool,
) -> None:
    """It keeps all elements, also after full syncs; other Services' stale elements are removed meanwhile."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(SERVICE_KINDS[kind], *slices("web", endpoint_numbers, local=endpoint_numbers[:1]))
    harness.apply(service("gone", 77), *slices("gone", [21]), service("plain", 8), *slices("plain", [22]))
    harness.sync()
    before = _elements(harness) - _elements(harness, "10.96.0.77")
    harness.delete("Service", "gone")
    if after_restart:
        harness = restarted(harness)

    def broken(plan: ServicePlan, *others: object) -> fragment.Fragment:
        if plan.name.service.name == "web":
            msg = "bug for the test"
            raise ZeroDivisionError(msg)
        return fragment.render_plan(plan, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "render_plan", broken)
    for _ in range(3):
        harness.proxiers[V4].invalidate(Invalidation())
        assert harness.sync()[V4].quarantined.keys() == {ServicePortName("default", "web", "http", "TCP")}
        assert _elements(harness) == before
        clock.now += 4000
