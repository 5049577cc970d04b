"""After a restart, only the rules of objects that could not be read stay (docs/behaviour/manifests.md#start)."""

from collections.abc import Collection
from typing import Any

import pytest
from msgspec import structs

from knft.model.names import NamespacedName
from knft.model.unknown import ANYTHING, UnknownObjects
from knft.nft.objects import Contents
from knft.render.names import NODEPORT_IPS
from knft.sync.previous_contents import PreviousContents
from tests.support.kernel_harness import CONFIG, service, slices
from tests.support.kube_objects import port_name
from tests.support.memory_harness import MemoryHarness
from tests.support.refused_services import refuse_address

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
}
BALANCER: dict[str, Any] = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}
INGRESS = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}}
SERVICES: dict[str, dict[str, Any]] = {
    "web": service("web", 1, node_port=30080),
    "sticky": service("sticky", 2, sessionAffinity="ClientIP"),
    "wide": service("wide", 3, externalIPs=[f"198.51.100.{number}" for number in range(1, 40)]),
    "balanced": service("balanced", 4, **BALANCER) | INGRESS,
}


@pytest.fixture(params=[CONFIG, structs.replace(CONFIG, localhost_nodeports=True)], ids=["", "localhost NodePorts"])
def harness(request: pytest.FixtureRequest) -> MemoryHarness:
    """Return a synced harness with a Service of each layout; each has endpoints on this node."""
    harness = MemoryHarness(config=request.param)
    harness.apply(NODE)
    for number, (name, item) in enumerate(SERVICES.items(), start=1):
        harness.apply(item, *slices(name, range(20 * number, 20 * number + 15), local=[20 * number]))
    harness.sync()
    return harness


def _unknown(*names: str) -> UnknownObjects:
    return UnknownObjects(services=frozenset(NamespacedName("default", name) for name in names))


def _restarted(harness: MemoryHarness, unknown: UnknownObjects, missing: set[tuple[str, str]]) -> MemoryHarness:
    """Return a new process that knows all but the ``missing`` kinds and names, after its first sync."""
    second = harness.restarted()
    for kind, name in list(second.objects):
        if not missing.isdisjoint({(kind, name), (kind, name.rpartition("-")[0])}):  # Names of slices have a suffix.
            second.change(kind, name, None)
    second.proxier.hold_removals(unknown)
    second.sync()
    return second


def _objects(*names: str, kinds: Collection[str] = ("Service", "EndpointSlice")) -> set[tuple[str, str]]:
    return {(kind, name) for kind in kinds for name in names}


def _names(contents: Contents) -> set[object]:
    return {*contents.entries, *contents.arrays, *contents.members, *contents.chains}


def _programmed(harness: MemoryHarness, name: str) -> set[object]:
    """Return the names and keys of what a Service has in the table."""
    programmed = harness.proxier._writer.programmed
    assert programmed is not None
    return _names(PreviousContents(programmed).last_known(port_name(service=name)))


def _found(harness: MemoryHarness) -> set[object]:
    chains = {name for name, chain in harness.table.chains.items() if chain.rules}
    return _names(harness.table.listing().contents) | chains


def _assert_fresh_after_release(harness: MemoryHarness) -> None:
    harness.proxier.release_removals()
    harness.sync()
    harness.now += 100_000  # Until shared chains that nothing uses are removed.
    harness.sync()
    assert harness.differences() == []


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("kinds", [("Service", "EndpointSlice"), ("Service",), ("EndpointSlice",)], ids=" ".join)
def test_unknown_service_stays_and_a_deleted_one_goes(
    harness: MemoryHarness, name: str, kinds: tuple[str, ...]
) -> None:
    other = "wide" if name == "web" else "web"
    unknown, deleted = _programmed(harness, name), _programmed(harness, other)

    second = _restarted(harness, _unknown(name), _objects(name, kinds=kinds) | _objects(other))

    assert unknown - _found(second) == set()
    assert deleted & _found(second) == set()
    assert second.sync().elements_removed == 0
    assert second.proxier.audit(second.table) == 0
    _assert_fresh_after_release(second)


@pytest.mark.parametrize(
    ("unknown", "stay"),
    [
        (UnknownObjects(namespaces=frozenset({"default"})), True),
        (UnknownObjects(namespaces=frozenset({"other"})), False),
        (UnknownObjects(node=True), False),
        (ANYTHING, True),
    ],
    ids=["its namespace", "another namespace", "the node", "anything"],
)
def test_all_services_of_an_unknown_namespace_stay(
    harness: MemoryHarness, unknown: UnknownObjects, *, stay: bool
) -> None:
    contents = {name: _programmed(harness, name) for name in SERVICES}
    second = _restarted(harness, unknown, _objects(*SERVICES))
    assert [found <= _found(second) for found in contents.values()] == [stay] * len(SERVICES)
    _assert_fresh_after_release(second)


@pytest.mark.parametrize("is_unknown", [True, False])
def test_node_stays_only_if_it_is_unknown(harness: MemoryHarness, *, is_unknown: bool) -> None:
    second = _restarted(harness, structs.replace(_unknown("web"), node=is_unknown), {("Node", "node-1")})
    assert ((NODEPORT_IPS, ("192.0.2.1",)) in _found(second)) == is_unknown
    _assert_fresh_after_release(second)


def test_fewer_unknown_objects_release_the_others(harness: MemoryHarness) -> None:
    contents = {name: _programmed(harness, name) for name in ("web", "sticky", "wide")}
    second = _restarted(harness, ANYTHING, _objects(*contents))
    found = []
    for unknown in (_unknown("web", "sticky"), _unknown("sticky"), _unknown()):
        second.proxier.hold_removals(unknown)
        second.sync()
        found.append([name for name, each in contents.items() if each <= _found(second)])
    assert found == [["web", "sticky"], ["sticky"], []]
    _assert_fresh_after_release(second)


def test_orphans_of_a_refused_removal_do_not_include_unknown_services(harness: MemoryHarness) -> None:
    """A quarantined Service port is retried, and orphans are removed, while another Service is unknown."""
    unknown = _programmed(harness, "sticky")
    second = _restarted(harness, _unknown("sticky"), _objects("sticky"))
    second.apply(service("new", 9), *slices("new", [9]))
    second.table.on_commit = refuse_address("10.96.0.9")
    assert [name.name for name in second.sync().quarantined] == ["new"]
    second.table.stop_failing()
    second.now += 10_000
    assert second.sync().quarantined == {}
    assert unknown - _found(second) == set()
    _assert_fresh_after_release(second)
