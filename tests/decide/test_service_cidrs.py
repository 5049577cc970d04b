"""Service CIDRs that contain addresses of the node or of pods (docs/behaviour/node.md#service-cidrs)."""

import pytest

from knft.config import Config, parse_service_cidrs
from knft.decide.node import view_node
from knft.decide.service_cidrs import find_conflicts
from knft.errors import UsageError
from knft.families import Family
from knft.model.objects import Node, NodeSpec, ObjectMeta, ServiceCIDR, ServiceCIDRSpec

NODE = Node(ObjectMeta("node-1"), spec=NodeSpec(pod_cidrs=("10.244.1.0/24", "fd00:10:244:1::/64")))


def _conflict(cidr: str, node_ip: str | None = "192.0.2.11", *local: str, cluster_cidr: str = "") -> str:
    config = Config("node-1", cluster_cidrs=(cluster_cidr,) if cluster_cidr else ())
    family = Family.IPV6 if ":" in cidr else Family.IPV4
    return find_conflicts([cidr], family, config, node=NODE, node_ip=node_ip, local_addresses=local).get(cidr, "")


@pytest.mark.parametrize(
    ("cidr", "conflict"),
    [
        ("10.96.0.0/12", ""),
        ("192.0.2.0/24", "contains the node's address 192.0.2.11"),
        ("10.244.0.0/16", "overlaps the node's pod CIDR 10.244.1.0/24"),
        ("10.244.1.128/25", "overlaps the node's pod CIDR 10.244.1.0/24"),
    ],
)
def test_addresses_of_the_node_and_its_pods_conflict(cidr: str, conflict: str) -> None:
    assert _conflict(cidr) == conflict


def test_cluster_cidr_may_contain_the_service_cidr() -> None:
    """kube-controller-manager then gives nodes other pod CIDRs; the other way round all pods are lost."""
    assert _conflict("10.96.0.0/12", cluster_cidr="10.0.0.0/8") == ""
    assert _conflict("10.128.0.0/9", cluster_cidr="10.200.0.0/16") == "overlaps the node's pod CIDR 10.244.1.0/24"
    assert _conflict("10.0.0.0/9", cluster_cidr="10.64.0.0/16") == "contains the cluster CIDR 10.64.0.0/16"
    assert _conflict("10.96.0.0/12", cluster_cidr="0.0.0.0/0") == ""


def test_addresses_of_interfaces_count_only_if_the_node_has_no_address() -> None:
    """A DNS cache on the node has a cluster IP, and so has kube-proxy's device kube-ipvs0."""
    assert _conflict("10.96.0.0/12", "192.0.2.11", "10.96.0.10") == ""
    assert _conflict("10.96.0.0/12", None, "192.0.2.11", "10.96.0.10") == ""
    assert _conflict("10.96.0.0/12", None) == ""
    assert _conflict("198.51.100.0/24", None, "127.0.0.1", "198.51.100.7") == "contains the node's address 198.51.100.7"


def test_ranges_of_objects_that_conflict_are_not_used() -> None:
    cidrs = ServiceCIDR(ObjectMeta("wide"), spec=ServiceCIDRSpec(cidrs=("10.96.0.0/16", "10.244.0.0/16")))
    view = view_node(Family.IPV4, Config("node-1", service_cidrs=("10.97.0.0/16",)), NODE, [cidrs], ())
    assert view.service_cidrs == ("10.96.0.0/16", "10.97.0.0/16")


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0", "64.0.0.0/2"])
def test_flag_with_loopback_addresses_is_an_error(cidr: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_service_cidrs("--service-cidr", ("10.96.0.0/12", cidr))
    assert str(raised.value) == (
        f"--service-cidr: {cidr} contains loopback addresses, so knft would drop connections to them; give the range "
        "of the cluster IPs, such as 10.96.0.0/12"
    )
