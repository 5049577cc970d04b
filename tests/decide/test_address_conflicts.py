"""External IPs that are addresses of the node or of pods (docs/behaviour/tracking.md#address-conflicts)."""

import pytest

from knft.config import Config
from knft.decide.address_conflicts import address_conflict
from knft.model.objects import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta

NODE = Node(
    ObjectMeta("node-1"),
    spec=NodeSpec(pod_cidrs=("10.244.1.0/24", "fd00:10:244:1::/64")),
    status=NodeStatus((NodeAddress("InternalIP", "192.0.2.11"), NodeAddress("ExternalIP", "198.51.100.11"))),
)
CONFIG = Config("node-1", node_ips=("192.0.2.12",), cluster_cidrs=("10.244.0.0/16",))


@pytest.mark.parametrize(
    ("address", "use"),
    [
        ("203.0.113.1", ""),
        ("not an address", ""),
        ("192.0.2.11", "the node's address"),
        ("192.0.2.12", "the node's address"),
        ("198.51.100.11", "the node's address"),
        ("10.244.1.7", "in the pod CIDR 10.244.1.0/24"),
        ("10.244.2.7", "in the pod CIDR 10.244.0.0/16"),
        ("fd00:10:244:1::7", "in the pod CIDR fd00:10:244:1::/64"),
    ],
)
def test_addresses_of_the_node_and_of_pods_conflict(address: str, use: str) -> None:
    assert address_conflict(address, CONFIG, NODE) == use


def test_no_address_conflicts_without_node_and_flags() -> None:
    assert address_conflict("192.0.2.11", Config("node-1"), None) == ""
