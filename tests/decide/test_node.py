"""The NodeView: which of the node's addresses and CIDRs count (docs/behaviour/configuration.md#node-addresses)."""

from collections.abc import Iterable

import pytest

from knft.config import Config
from knft.decide.node import describe_node, node_addresses, view_node
from knft.detect_local import DetectLocal
from knft.families import Family
from knft.model.node import NodeView
from knft.model.objects import (
    Labels,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    ServiceCIDR,
    ServiceCIDRSpec,
)

V4, V6 = Family.IPV4, Family.IPV6
LISTED = (
    ("Hostname", "node-1"),
    ("ExternalIP", "198.51.100.1"),
    ("InternalIP", "192.0.2.11"),
    ("InternalIP", "2001:db8::11"),
    ("ExternalIP", "2001:db8:2::11"),
)
LOCAL = ("127.0.0.1", "192.0.2.11", "203.0.113.9", "::1", "2001:db8::11", "2001:db8:2::11")


def _node(
    zone: str | None = None,
    *,
    pod_cidrs: tuple[str, ...] | None = None,
    addresses: Iterable[tuple[str, str]] | None = LISTED,
) -> Node:
    status = NodeStatus(tuple(NodeAddress(*each) for each in addresses)) if addresses is not None else None
    return Node(ObjectMeta("node-1", labels=Labels(zone=zone)), NodeSpec(pod_cidrs), status)


def _view(family: Family, config: Config, node: Node | None = None, *cidrs: tuple[str, ...] | None) -> NodeView:
    service_cidrs = [ServiceCIDR(ObjectMeta(str(number)), ServiceCIDRSpec(each)) for number, each in enumerate(cidrs)]
    return view_node(family, config, node, service_cidrs, LOCAL)


def test_unknown_node_has_its_name_only() -> None:
    assert NodeView(V4, "node-1") == _view(V4, Config("node-1"))


def test_zone_is_the_label_or_empty() -> None:
    assert _view(V4, Config("node-1"), _node("zone-a")).zone == "zone-a"
    assert _view(V4, Config("node-1"), _node(None)).zone == ""


@pytest.mark.parametrize(
    ("node", "addresses"),
    [
        (None, ()),
        (_node(addresses=None), ()),
        (Node(ObjectMeta("node-1"), status=NodeStatus(None)), ()),
        (_node(), ("192.0.2.11", "2001:db8::11", "198.51.100.1", "2001:db8:2::11")),
    ],
)
def test_internal_addresses_come_first(node: Node | None, addresses: tuple[str, ...]) -> None:
    assert node_addresses(node) == addresses


@pytest.mark.parametrize(("family", "address"), [(V4, "192.0.2.11"), (V6, "2001:db8::11")])
def test_node_ip_is_the_first_of_the_family(family: Family, address: str) -> None:
    view = _view(family, Config("node-1"), _node())
    assert (view.family, view.node_ip, view.nodeport_ips) == (family, address, frozenset({address}))


def test_configured_node_ip_takes_precedence() -> None:
    config = Config("node-1", node_ips=("203.0.113.9",))
    assert _view(V4, config, _node()).node_ip == "203.0.113.9"
    assert _view(V6, config, _node()).node_ip == "2001:db8::11"


@pytest.mark.parametrize(
    ("family", "nodeport_addresses", "expected"),
    [
        (V4, ("192.0.2.0/24",), {"192.0.2.11"}),
        (V4, ("primary", "203.0.113.0/24"), {"192.0.2.11", "203.0.113.9"}),
        (V4, ("192.0.2.0/24", "203.0.113.0/24"), {"192.0.2.11", "203.0.113.9"}),
        (V4, ("0.0.0.0/0",), {"192.0.2.11", "203.0.113.9"}),
        (V4, ("127.0.0.0/8",), set()),
        (V4, ("2001:db8::/32",), set()),
        (V6, ("192.0.2.0/24", "2001:db8::/32"), {"2001:db8::11", "2001:db8:2::11"}),
    ],
)
def test_nodeport_addresses(family: Family, nodeport_addresses: tuple[str, ...], expected: set[str]) -> None:
    """Loopback addresses never accept NodePorts."""
    config = Config("node-1", nodeport_addresses=nodeport_addresses)
    assert _view(family, config, _node()).nodeport_ips == expected


def test_loopback_node_ip_accepts_no_nodeports() -> None:
    view = _view(V4, Config("node-1", node_ips=("127.0.0.1",)))
    assert (view.node_ip, view.nodeport_ips) == ("127.0.0.1", frozenset())


def test_service_cidrs_are_those_of_flags_and_objects() -> None:
    config = Config("node-1", service_cidrs=("10.96.0.0/16", "fd00:10:96::/112"))
    objects = (("10.97.0.0/24", "fd00:10:97::/112"), None, ("10.96.0.0/16", "10.9.0.0/24"))
    assert _view(V4, config, None, *objects).service_cidrs == ("10.9.0.0/24", "10.96.0.0/16", "10.97.0.0/24")
    assert _view(V6, config, None, *objects).service_cidrs == ("fd00:10:96::/112", "fd00:10:97::/112")


@pytest.mark.parametrize(
    ("mode", "pod_cidr"), [("ClusterCIDR", "10.244.0.0/16"), ("NodeCIDR", "10.244.1.0/24"), ("BridgeInterface", None)]
)
def test_pod_cidr_depends_on_the_mode(mode: DetectLocal, pod_cidr: str | None) -> None:
    config = Config("node-1", detect_local_mode=mode, cluster_cidrs=("10.244.0.0/16",), pod_interface="cni0")
    node = _node(pod_cidrs=("fd00:10:244:1::/64", "10.244.1.0/24", "10.244.9.0/24"))
    assert _view(V4, config, node).pod_cidr == pod_cidr


def test_pod_cidr_is_unknown_without_a_cidr_of_the_family() -> None:
    config = Config("node-1", detect_local_mode="NodeCIDR")
    nodes = (None, Node(ObjectMeta("node-1")), _node(pod_cidrs=None), _node(pod_cidrs=("fd00:10:244:1::/64",)))
    assert [_view(V4, config, node).pod_cidr for node in nodes] == [None] * 4
    assert _view(V6, Config("node-1", cluster_cidrs=("10.244.0.0/16",))).pod_cidr is None


def test_description_of_a_node_names_a_few_of_many_addresses_and_ranges() -> None:
    view = NodeView(
        V4,
        "node-1",
        "",
        "192.0.2.1",
        frozenset(f"192.0.2.{number}" for number in range(1, 101)),
        tuple(f"10.{number}.0.0/16" for number in range(1, 9)),
        "10.244.0.0/24",
    )
    assert describe_node(view, Config("node-1", nodeport_addresses=("192.0.2.0/24",))) == (
        "node address 192.0.2.1; "
        "NodePorts at 192.0.2.1, 192.0.2.10, 192.0.2.100, 192.0.2.11, 192.0.2.12 and 95 more; "
        "cluster IPs in 10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16, 10.4.0.0/16, 10.5.0.0/16 and 3 more; "
        "pods in 10.244.0.0/24"
    )
