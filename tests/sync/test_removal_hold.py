"""While not all objects are known, a sync removes nothing that it finds in the kernel."""

from typing import Any

import pytest

from knft.config import Config
from knft.errors import UnavailableError
from knft.families import Family
from knft.nft.objects import Contents
from knft.render.names import NODEPORT_IPS, SERVICE_IPS
from knft.sync.state import PendingChanges
from tests.support.kernel_harness import KernelHarness, contents_of_fresh_start, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
}
STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}
OBJECTS = (
    NODE,
    service("web", 10, node_port=30080),
    *slices("web", [11, 12]),
    service("sticky", 20, **STICKY),
    *slices("sticky", [21, 22], local=[21]),
    service("ranges", 30, type="LoadBalancer", loadBalancerSourceRanges=["198.51.100.0/24"])
    | {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.30"}]}}},
    *slices("ranges", [31]),
)


@pytest.fixture
def found(namespace: Namespace) -> Contents:
    """Return the contents that an earlier process has left in the kernel."""
    harness = KernelHarness(namespace)
    harness.apply(*OBJECTS)
    harness.sync()
    contents = harness.listing().contents
    assert contents.arrays
    assert (NODEPORT_IPS, ("192.0.2.1",)) in contents.members
    return contents


def _without(kind: str) -> list[dict[str, Any]]:
    return [item for item in OBJECTS if item["kind"] != kind]


def _started(namespace: Namespace, *objects: dict[str, Any]) -> KernelHarness:
    """Return a process that knows only these objects, after its first sync."""
    harness = KernelHarness(namespace)
    harness.daemon.hold_removals()
    harness.apply(*objects)
    harness.sync()
    return harness


@pytest.mark.parametrize("missing", ["all", "Node", "Service", "EndpointSlice"])
def test_missing_objects_change_nothing_until_they_are_known(
    namespace: Namespace, found: Contents, missing: str
) -> None:
    objects = [] if missing == "all" else _without(missing)
    harness = _started(namespace, *objects)
    left = found.without(harness.listing().contents)
    assert left == Contents.empty()
    harness.apply(*OBJECTS)
    harness.daemon.release_removals()
    harness.sync()
    assert harness.listing().contents == found


def test_removals_are_made_after_the_release(namespace: Namespace, found: Contents) -> None:
    harness = _started(namespace, *_without("Node"))
    harness.apply(NODE)
    harness.delete("Service", "web")
    harness.delete("Service", "ranges")
    harness.daemon.release_removals()
    harness.sync()
    assert harness.listing().contents == contents_of_fresh_start(harness)
    assert harness.listing().contents != found


def test_release_during_a_sync_is_not_lost(
    namespace: Namespace, found: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sync drains for seconds; meanwhile the last manifest is read."""
    harness = KernelHarness(namespace)
    harness.daemon.hold_removals()
    harness.apply(*OBJECTS)
    harness.delete("Service", "web")
    state = harness.proxiers[Family.IPV4].state
    drain = state.drain

    def drain_and_release() -> PendingChanges:
        harness.daemon.release_removals()
        return drain()

    with monkeypatch.context() as patch:
        patch.setattr(state, "drain", drain_and_release)
        harness.sync()
    assert harness.listing().contents == found
    reports = [harness.sync()[Family.IPV4] for _ in range(2)]
    assert [report.is_full for report in reports] == [True, False]
    assert harness.listing().contents == contents_of_fresh_start(harness)


@pytest.mark.usefixtures("found")
def test_known_objects_are_served_and_followed_meanwhile(namespace: Namespace) -> None:
    """Also objects that are new, and those that are removed while knft runs."""
    harness = _started(namespace, service("web", 10, node_port=30080), *slices("web", [11, 13]), service("new", 40))
    harness.apply(*slices("new", [41]))
    harness.sync()
    addresses = {key[0] for container, key in harness.listing().contents.entries if container == SERVICE_IPS}
    assert addresses >= {"10.96.0.10", "10.96.0.20", "10.96.0.40"}
    harness.delete("Service", "web")
    harness.sync()
    addresses = {key[0] for container, key in harness.listing().contents.entries if container == SERVICE_IPS}
    assert "10.96.0.10" not in addresses
    assert "10.96.0.20" in addresses


@pytest.mark.usefixtures("found")
def test_kept_contents_are_expected_by_the_audit(namespace: Namespace) -> None:
    harness = _started(namespace, service("web", 10, node_port=30080))
    checked = harness.checked_tables[Family.IPV4]
    assert harness.proxiers[Family.IPV4].audit(checked) == 0
    reads = checked.reads
    report = harness.sync()[Family.IPV4]
    assert (report.is_full, checked.reads, report.elements_removed) == (False, reads, 0)


def test_incompatible_table_is_not_replaced_while_removals_are_held(namespace: Namespace, found: Contents) -> None:
    namespace.run(["nft", "add chain ip knft filter-input-2 { type filter hook input priority 5; }"])
    namespace.run(["nft", "delete chain ip knft filter-forward"])
    namespace.run(["nft", "add chain ip knft filter-forward { type filter hook forward priority 7; }"])
    harness = KernelHarness(namespace)
    harness.daemon.hold_removals()
    with pytest.raises(UnavailableError, match="the table stays as it is until every manifest was read"):
        harness.proxiers[Family.IPV4].sync()
    assert harness.listing().contents == found
    harness.apply(*OBJECTS)
    harness.daemon.release_removals()
    harness.sync()
    assert harness.listing().contents == found


def test_configuration_without_node_keeps_service_cidrs(namespace: Namespace) -> None:
    """The rest of the node's contents are of flags, ServiceCIDRs and the Node."""
    config = Config("node-1", service_cidrs=())
    cidr = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    }
    first = KernelHarness(namespace, config)
    first.apply(cidr)
    first.sync()
    found = first.listing().contents
    harness = KernelHarness(namespace, config)
    harness.daemon.hold_removals()
    harness.sync()
    assert harness.listing().contents == found
    harness.daemon.release_removals()
    harness.sync()
    assert harness.listing().contents != found
