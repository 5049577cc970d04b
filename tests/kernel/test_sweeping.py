"""What nobody wants any more is removed, if need be later, and what somebody may still want is not."""

import pytest

from knft.model.names import Family, ServicePortName
from knft.model.plan import ServicePlan
from knft.nft.objects import Key
from knft.render import fragment
from knft.render.names import STICKY_PREFIX
from knft.sync import prepare
from knft.sync.doubts import Doubt
from tests.kernel.harness import KernelHarness, held_by_fresh_start, restarted, service, slices
from tests.kernel.poison import Clock, many, refusing
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
V4 = Family.IPV4
PAUSE = 30.0


def _places(harness: KernelHarness, address: str = "") -> set[tuple[str, Key]]:
    """Return all that the kernel holds about a frontend's address, or about all; of sticky ports, chains too."""
    listing = harness.held()
    places = {*listing.contents.entries, *listing.contents.members}
    places |= {(name.container, name.prefix) for name in listing.contents.arrays}
    places |= {(name, ()) for name, rules in listing.chains.items() if name.startswith(STICKY_PREFIX) and rules}
    return {place for place in places if address in place[1]} if address else places


@pytest.mark.parametrize("others", [True, False], ids=["among others", "the last one"])
def test_a_service_whose_removal_is_refused_is_removed_later(namespace: Namespace, *, others: bool) -> None:
    """A deleted Service is not served for life because the kernel refused its removal for a moment."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    if others:
        many(harness)
    harness.apply(service("gone", 77), *slices("gone", [11]))
    harness.sync()
    port = harness.ports[V4]
    harness.delete("Service", "gone")
    port.meddle = refusing("10.96.0.77")
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        report = harness.sync()[V4]
        assert (report.left_out, report.unswept, report.again_within) == ({}, "poison", pause)
        assert _places(harness, "10.96.0.77")
        clock.now += pause
    port.meddle = lambda _: None
    report = harness.sync()[V4]
    assert (report.unswept, report.again_within) == ("", None)
    assert held_by_fresh_start(harness) == harness.held().contents


def test_what_cannot_be_removed_is_said_once(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(service("gone", 77), *slices("gone", [11]))
    harness.daemon.sync()
    harness.delete("Service", "gone")
    harness.ports[V4].meddle = refusing("10.96.0.77")
    for _ in range(3):
        assert harness.daemon.sync()
        clock.now += 4000
    said = "IPv4: what nobody wants any more is still there, and tried again: poison"
    assert caplog.messages.count(said) == 1


def test_the_audit_finds_what_was_to_be_removed(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)
    harness.sync()
    harness.delete("Service", "web-7")
    harness.ports[V4].meddle = refusing("10.96.0.7")
    harness.sync()
    assert harness.proxiers[V4].audit(harness.tables[V4]) == len(_places(harness, "10.96.0.7")) + 1  # Two endpoints.
    harness.ports[V4].meddle = lambda _: None
    harness.sync()
    assert harness.proxiers[V4].audit(harness.tables[V4]) == 0
    assert held_by_fresh_start(harness) == harness.held().contents


def test_the_audit_does_not_mind_what_a_service_that_is_left_out_keeps(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)
    harness.sync()
    harness.apply(*slices("web-7", [51]))
    harness.ports[V4].meddle = refusing("10.96.0.7")
    assert harness.sync()[V4].left_out
    assert harness.proxiers[V4].audit(harness.tables[V4]) == 0


STICKY = {"sessionAffinity": "ClientIP"}
FORMS = {
    "plain": service("web", 7, node_port=30080, externalIPs=["203.0.113.7"]),
    "sticky": service("web", 7, node_port=30080, **STICKY),
    "guarded": service("web", 7, type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/24"])
    | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start", [True, False], ids=["at a start", "later"])
@pytest.mark.parametrize("numbers", [[11, 12], []], ids=["with endpoints", "without"])
def test_a_service_that_knft_fails_on_keeps_what_it_has(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, form: str, numbers: list[int], *, start: bool
) -> None:
    """All of it, over comparisons as well; and what is somebody else's and not wanted any more goes meanwhile."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    harness.apply(FORMS[form], *slices("web", numbers, local=numbers[:1]))
    harness.apply(service("gone", 77), *slices("gone", [21]), service("plain", 8), *slices("plain", [22]))
    harness.sync()
    before = _places(harness) - _places(harness, "10.96.0.77")
    harness.delete("Service", "gone")
    if start:
        harness = restarted(harness)

    def broken(plan: ServicePlan, *others: object) -> fragment.Fragment:
        if plan.name.service.name == "web":
            msg = "a mistake"
            raise ZeroDivisionError(msg)
        return fragment.render_plan(plan, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "render_plan", broken)
    for _ in range(3):
        harness.proxiers[V4].doubt(Doubt())
        assert harness.sync()[V4].left_out.keys() == {ServicePortName("default", "web", "http", "TCP")}
        assert _places(harness) == before
        clock.now += 4000
