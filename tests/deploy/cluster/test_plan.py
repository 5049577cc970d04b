from ipaddress import ip_address, ip_network
from itertools import combinations

import pytest

from deploy.cluster.plan import Families, Plan, Proxy, make_plan
from deploy.programs.errors import SetupError


def _networks(plan: Plan) -> list[str]:
    machines = [
        str(ip_network(f"{address}/{length}", strict=False))
        for address, length in zip(plan.addresses, plan.prefix_lengths, strict=True)
    ]
    return [*machines, *plan.pod_cidrs, *plan.service_cidrs]


@pytest.mark.parametrize("families", Families)
def test_networks_do_not_overlap(families: Families) -> None:
    networks = [ip_network(each) for each in _networks(make_plan(families=families))]
    pairs = [pair for pair in combinations(networks, 2) if pair[0].version == pair[1].version]
    assert not [pair for pair in pairs if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize("nodes", [1, 3, 89])
def test_nodes_have_addresses_and_pod_cidrs_of_their_own(nodes: int) -> None:
    plan = make_plan(nodes)
    assert len(plan.nodes) == nodes
    addresses = [*plan.addresses, *(address for node in plan.nodes for address in node.addresses)]
    assert len(set(addresses)) == 2 * (nodes + 1)
    cidrs = [cidr for node in plan.nodes for cidr in node.pod_cidrs]
    assert len(set(cidrs)) == 2 * nodes
    for node in plan.nodes:
        for cidr, all_pods in zip(node.pod_cidrs, plan.pod_cidrs, strict=True):
            assert ip_network(cidr).subnet_of(ip_network(all_pods))  # type: ignore[arg-type] # equal versions


@pytest.mark.parametrize(
    ("families", "versions"), [(Families.DUAL, [4, 6]), (Families.IPV4, [4]), (Families.IPV6, [6])]
)
def test_addresses_are_of_the_families_in_order(families: Families, versions: list[int]) -> None:
    plan = make_plan(families=families)
    for found in (plan.addresses, plan.dns_addresses, plan.nodes[0].addresses):
        assert [ip_address(each).version for each in found] == versions
    for found in (plan.pod_cidrs, plan.service_cidrs, plan.nodes[0].pod_cidrs):
        assert [ip_network(each).version for each in found] == versions
    assert ip_address(plan.api_service_address) in ip_network(plan.service_cidrs[0])


def test_numbers_of_nodes_are_readable_in_both_families() -> None:
    node = make_plan(12).node("node12")
    assert node.addresses == ("192.168.100.22", "fd00:192:168:100::22")
    assert node.pod_cidrs == ("10.244.12.0/24", "fd00:10:244:12::/64")


def test_nodes_are_assigned_to_zones_in_turn() -> None:
    assert [node.zone for node in make_plan(4, zones=2).nodes] == ["zone-1", "zone-2", "zone-1", "zone-2"]
    assert len({node.zone for node in make_plan(4).nodes}) == 4


def test_last_proxy_is_that_of_further_nodes() -> None:
    plan = make_plan(3, proxies=(Proxy.KUBE_PROXY, Proxy.KNFT))
    assert [node.proxy for node in plan.nodes] == [Proxy.KUBE_PROXY, Proxy.KNFT, Proxy.KNFT]


def test_kubeadm_s_daemon_set_runs_on_all_nodes() -> None:
    assert make_plan(3, proxies=(Proxy.KUBEADM,)).has_kubeadm_kube_proxy
    with pytest.raises(SetupError, match="give --proxy kubeadm alone"):
        make_plan(3, proxies=(Proxy.KUBEADM, Proxy.KNFT))


@pytest.mark.parametrize("arguments", [{"nodes": 0}, {"nodes": 90}, {"zones": -1}, {"proxies": ()}])
def test_impossible_plan_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(SetupError):
        make_plan(**arguments)  # type: ignore[arg-type] # wrong by intention


def test_url_has_brackets_around_an_ipv6_address() -> None:
    assert make_plan().api_address == "https://192.168.100.1:6443"
    assert make_plan(families=Families.IPV6).api_address == "https://[fd00:192:168:100::1]:6443"


def test_unknown_node_is_named() -> None:
    with pytest.raises(SetupError, match="no node 'node4': the cluster has node1, node2, node3"):
        make_plan().node("node4")
