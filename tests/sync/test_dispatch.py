"""The Dispatcher: which states get a change, and which objects make up the NodeView."""

from collections.abc import Iterable

from knft.config import Config
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.node import NodeView
from knft.model.objects import (
    EndpointSlice,
    Labels,
    Node,
    NodeAddress,
    NodeStatus,
    ObjectChange,
    ObjectMeta,
    ServiceCIDR,
    ServiceCIDRSpec,
)
from knft.sync.assemble import states_after_batches
from knft.sync.dispatch import Dispatcher
from tests.support.kube_objects import NODE, OTHER_NODE, endpoint_slice, service

ADDRESS, OTHER_ADDRESS = "192.0.2.11", "198.51.100.1"


class Dispatched:
    """A dispatcher of both families."""

    def __init__(self, config: Config) -> None:
        (self.states,) = states_after_batches(config, ())
        self.dispatcher = Dispatcher(config, tuple(self.states.values()))

    def node(self, family: Family = Family.IPV4) -> NodeView:
        return self.states[family].latest_node

    def change(self, previous: object, current: object) -> bool:
        return bool(self.dispatcher.handle([ObjectChange(previous, current)]))  # type: ignore[arg-type]


def _node(name: str, zone: str = "zone-a", addresses: Iterable[str] = (ADDRESS, "fd00::11")) -> Node:
    status = NodeStatus(tuple(NodeAddress("InternalIP", address) for address in addresses))
    return Node(ObjectMeta(name, labels=Labels(zone=zone)), None, status)


def test_own_node_is_passed_to_both_families() -> None:
    dispatched = Dispatched(Config(NODE))
    has_node = [dispatched.dispatcher.has_node]
    assert dispatched.change(None, _node(NODE))
    has_node.append(dispatched.dispatcher.has_node)
    assert [dispatched.node(family).node_ip for family in Family] == [ADDRESS, "fd00::11"]
    assert [dispatched.node(family).zone for family in Family] == ["zone-a"] * 2
    assert not dispatched.change(_node(NODE), _node(NODE))
    assert dispatched.change(_node(NODE), None)
    has_node.append(dispatched.dispatcher.has_node)
    assert has_node == [False, True, False]
    assert dispatched.node().node_ip is None


def test_other_nodes_are_known_by_name_only() -> None:
    dispatched = Dispatched(Config(NODE))
    other = _node(OTHER_NODE)
    for each in (other, _node("node-3")):
        assert not dispatched.change(None, each)
    assert not dispatched.dispatcher.has_node
    assert dispatched.dispatcher.other_nodes == {OTHER_NODE, "node-3"}
    assert not dispatched.change(other, _node(OTHER_NODE, "zone-b"))
    assert not dispatched.change(other, None)
    assert dispatched.dispatcher.other_nodes == {"node-3"}
    dispatched.change(None, _node(NODE))
    assert dispatched.dispatcher.other_nodes == {"node-3"}


def test_addresses_of_interfaces_replace_those_of_the_node_object() -> None:
    dispatched = Dispatched(Config(NODE, nodeport_addresses=("192.0.2.0/24", "198.51.100.0/24")))
    dispatched.change(None, _node(NODE))
    assert dispatched.node().nodeport_ips == {ADDRESS}
    assert dispatched.dispatcher.update_local_addresses(frozenset({OTHER_ADDRESS}))
    assert dispatched.node().nodeport_ips == {OTHER_ADDRESS}
    assert not dispatched.dispatcher.update_local_addresses(frozenset({OTHER_ADDRESS, "127.0.0.1"}))
    assert dispatched.dispatcher.local_addresses == frozenset({OTHER_ADDRESS, "127.0.0.1"})


def test_service_cidrs_come_and_go() -> None:
    def cidr(name: str, *cidrs: str) -> ServiceCIDR:
        return ServiceCIDR(ObjectMeta(name), ServiceCIDRSpec(cidrs))

    dispatched = Dispatched(Config(NODE))
    assert dispatched.change(None, cidr("a", "10.96.0.0/16", "fd00:10:96::/112"))
    assert dispatched.change(None, cidr("b", "10.97.0.0/24"))
    assert dispatched.node().service_cidrs == ("10.96.0.0/16", "10.97.0.0/24")
    assert dispatched.change(cidr("b", "10.97.0.0/24"), cidr("b", "10.98.0.0/24"))
    assert dispatched.change(cidr("a", "10.96.0.0/16", "fd00:10:96::/112"), None)
    assert dispatched.node().service_cidrs == ("10.98.0.0/24",)
    assert dispatched.node(Family.IPV6).service_cidrs == ()


def test_any_change_of_several_makes_a_sync_due() -> None:
    dispatched = Dispatched(Config(NODE))
    changes = [ObjectChange(None, service()), ObjectChange(None, _node(OTHER_NODE))]
    assert dispatched.dispatcher.handle(changes)
    assert not dispatched.dispatcher.handle([])


def test_slice_is_passed_to_its_family_and_to_both_if_its_address_type_changes() -> None:
    """A manifest may give a slice another address type; its endpoints must not stay in the other family."""
    dispatched = Dispatched(Config(NODE))
    web = NamespacedName("default", "web")

    def pass_change(previous: EndpointSlice | None, current: EndpointSlice | None) -> tuple[set[Family], list[int]]:
        due = dispatched.dispatcher.handle([ObjectChange(previous, current)])
        return due, [len(dispatched.states[family].slices(web)) for family in Family]

    ipv4, ipv6 = endpoint_slice("web-1", "10.244.2.1"), endpoint_slice("web-1", "fd00::1", family="IPv6")
    assert pass_change(None, ipv4) == ({Family.IPV4}, [1, 0])
    assert pass_change(ipv4, ipv6) == (set(Family), [0, 1])
    fqdn = endpoint_slice("web-1", "example.org", family="FQDN")
    assert pass_change(ipv6, fqdn) == ({Family.IPV6}, [0, 0])
    assert pass_change(fqdn, None) == (set(), [0, 0])
