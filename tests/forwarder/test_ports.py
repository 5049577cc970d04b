"""Which NodePorts the forwarder serves after each sync."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from knft.families import Family
from knft.forwarder.observer import LocalhostNodePorts
from knft.forwarder.ports import ForwardedPort, PortChanges, forwarded_port
from knft.model.objects import KubeObject
from tests.support.kube_objects import endpoint, endpoint_slice, port_name, service, service_port, slice_port
from tests.support.memory_harness import MemoryHarness

LOCAL, ELSEWHERE = endpoint("10.244.1.11", node="node-1"), endpoint("10.244.2.11", node="node-2")
WEB, LOCAL_TARGET, OTHER_TARGET = str(port_name()), ("10.244.1.11", 8080), ("10.244.2.11", 8080)


class Node:
    """One family on a table in memory; it takes the forwarder's place."""

    def __init__(self) -> None:
        self._harness = MemoryHarness()
        self.observer = LocalhostNodePorts({Family.IPV4: self})
        self.changes: PortChanges = {}

    def update(self, family: Family, changes: Mapping[int, ForwardedPort | None]) -> None:
        assert family is Family.IPV4
        self.changes.update(changes)

    def change(self, *objects: KubeObject) -> PortChanges:
        """Apply objects and sync; return what the forwarder is told."""
        for each in objects:
            self._harness.change(type(each).__name__, each.key.name, each)
        return self.sync()

    def delete(self, kind: str, name: str) -> PortChanges:
        self._harness.change(kind, name, None)
        return self.sync()

    def sync(self) -> PortChanges:
        self.observer.sync_succeeded(self._harness.sync(), self._harness.state)
        return self.take()

    def expected(self) -> dict[int, ForwardedPort]:
        """Return the NodePorts that the current plans need."""
        state = self._harness.state
        plans = [plan for name in state.service_ports() if (plan := state.plan(name)) is not None]
        return dict(found for plan in plans if (found := forwarded_port(plan)) is not None)

    def take(self) -> PortChanges:
        """Return the changes since the last call."""
        taken, self.changes = self.changes, {}
        return taken


def _web(number: int | None = 30080, name: str = "web", **spec: Any) -> KubeObject:
    return service(name, ports=(service_port(node_port=number),), type="NodePort", **spec)


@pytest.fixture
def node() -> Node:
    """A node with one NodePort, whose endpoints are on it and elsewhere."""
    created = Node()
    served = ForwardedPort(WEB, (LOCAL_TARGET, OTHER_TARGET))
    assert created.change(_web(), endpoint_slice("web-1", LOCAL, ELSEWHERE)) == {30080: served}
    return created


def test_policy_local_leaves_the_endpoints_on_this_node(node: Node) -> None:
    """As in kube-proxy, whose rules let the node itself reach the others at its address."""
    assert node.change(_web(external_traffic_policy="Local")) == {30080: ForwardedPort(WEB, (LOCAL_TARGET,))}
    assert node.change(endpoint_slice("web-1", ELSEWHERE)) == {30080: None}


def test_terminating_endpoint_is_used_if_no_other_is_ready(node: Node) -> None:
    terminating = endpoint("10.244.1.11", ready=False, serving=True, terminating=True)
    assert node.change(endpoint_slice("web-1", terminating, ELSEWHERE)) == {30080: ForwardedPort(WEB, (OTHER_TARGET,))}
    assert node.change(endpoint_slice("web-1", terminating)) == {30080: ForwardedPort(WEB, (LOCAL_TARGET,))}
    assert node.change(endpoint_slice("web-1", endpoint("10.244.1.11", ready=False))) == {30080: None}


def test_affinity_timeout_is_passed(node: Node) -> None:
    changed = ForwardedPort(WEB, (LOCAL_TARGET, OTHER_TARGET), 10800)
    assert node.change(_web(session_affinity="ClientIP")) == {30080: changed}


def test_changed_number_closes_the_former_one(node: Node) -> None:
    served = ForwardedPort(WEB, (LOCAL_TARGET, OTHER_TARGET))
    assert node.change(_web(30081)) == {30080: None, 30081: served}
    assert node.change(_web(None)) == {30081: None}


def test_two_services_swap_their_numbers(node: Node) -> None:
    other = str(port_name(service="other"))
    node.change(_web(30081, "other", cluster_ip="10.96.0.2"), endpoint_slice("other-1", LOCAL, service="other"))
    node.delete("Service", "other")
    changes = node.change(_web(30081), _web(30080, "other", cluster_ip="10.96.0.2"))
    assert {number: port and port.service for number, port in changes.items()} == {30080: other, 30081: WEB}


def test_number_passes_to_another_service(node: Node) -> None:
    """The Service that claims it later gets it when the first one is deleted."""
    other = str(port_name(service="web2"))
    later = _web(name="web2", cluster_ip="10.96.0.2")
    assert node.change(later, endpoint_slice("web2-1", LOCAL, service="web2")) == {}
    assert node.delete("Service", "web") == {30080: ForwardedPort(other, (LOCAL_TARGET,))}


def test_other_changes_tell_the_forwarder_nothing(node: Node) -> None:
    assert node.sync() == {}
    assert node.change(service("db", cluster_ip="10.96.0.9"), endpoint_slice("db-1", LOCAL, service="db")) == {}
    assert node.delete("Service", "db") == {}


def test_other_protocols_are_not_served(node: Node) -> None:
    ports = (service_port(53, "dns", "UDP", node_port=30053), service_port(54, "ctl", "SCTP", node_port=30054))
    dns = service("dns", ports=ports, type="NodePort", cluster_ip="10.96.0.53")
    served = (slice_port("dns", 53, "UDP"), slice_port("ctl", 54, "SCTP"))
    assert node.change(dns, endpoint_slice("dns-1", LOCAL, service="dns", ports=served)) == {}


def test_ports_are_closed_while_the_table_is_left_to_another_process(node: Node) -> None:
    """The older version of knft may open them. Afterwards all are opened again, those that changed meanwhile, too."""
    for _ in range(2):
        node.observer.table_left(Family.IPV4)
    assert node.take() == {30080: None}
    served = {30080: ForwardedPort(WEB, (LOCAL_TARGET, OTHER_TARGET))}
    assert node.sync() == served
    assert node.sync() == {}


def test_family_that_is_not_served_is_ignored(node: Node) -> None:
    node.observer = LocalhostNodePorts({Family.IPV6: node})
    assert node.change(_web(30081)) == {}
    node.observer.table_left(Family.IPV4)
    assert node.take() == {}


class RandomNode(Node):
    """A node whose Services, which claim each other's NodePorts, and endpoints change at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)  # noqa: S311 - reproducible
        self.served: dict[int, ForwardedPort] = {}

    def step(self) -> None:
        """Make changes, sync, and take what the forwarder is told; sometimes another knft had the table before."""
        for _ in range(self._random.randint(1, 4)):
            self._change()
        if self._random.random() < 0.1:
            self.observer.table_left(Family.IPV4)
            self._take()
            assert self.served == {}
        self.observer.sync_succeeded(self._harness.sync(), self._harness.state)
        self._take()

    def _change(self) -> None:
        number = self._random.randrange(5)
        name = f"web-{number}"
        if self._random.random() < 0.2:
            kind, name = self._random.choice([("Service", name), ("EndpointSlice", f"{name}-1")])
            if (kind, name) in self._harness.objects:
                self._harness.change(kind, name, None)
            return
        changed: KubeObject
        if self._random.random() < 0.5:
            policy, affinity = self._random.choice(["Cluster", "Local"]), self._random.choice([None, "ClientIP"])
            port = self._random.choice([None, 30080, 30081, 30082])
            address = f"10.96.0.{10 + number}"
            changed = _web(
                port, name, cluster_ip=address, external_traffic_policy=policy, session_affinity=affinity,
            )  # fmt: skip
        else:
            ready = self._random.random() < 0.7
            chosen = self._random.sample(
                [LOCAL, ELSEWHERE, endpoint("10.244.2.12", ready=ready)], self._random.randint(0, 3)
            )
            changed = endpoint_slice(f"{name}-1", *chosen, service=name)
        self._harness.change(type(changed).__name__, changed.key.name, changed)

    def _take(self) -> None:
        for number, port in self.take().items():
            if port is None:
                del self.served[number]
            else:
                self.served[number] = port


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_lead_to_what_the_current_plans_need(seed: int) -> None:
    """The changes of all syncs together are right, and none closes a NodePort that is not open."""
    node = RandomNode(seed)
    for _ in range(60):
        node.step()
        assert node.served == node.expected()
