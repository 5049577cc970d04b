"""The plan of a cluster: its nodes and all names and addresses. Computes only."""

from collections.abc import Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network

from msgspec import Struct

from deploy.programs.errors import SetupError

API_PORT = 6443
DOMAIN = "cluster.local"
_MAX_NODES = 99
"""Addresses and pod CIDRs have the node's number in one decimal group."""


class Families(StrEnum):
    """The IP families of a cluster, the first one of which is primary."""

    DUAL = "dual"
    IPV4 = "ipv4"
    IPV6 = "ipv6"


class Proxy(StrEnum):
    """The Service proxy of a node."""

    KNFT = "knft"
    KUBE_PROXY = "kube-proxy"
    """A process on the node, in mode nftables."""
    KUBEADM = "kubeadm"
    """The DaemonSet kube-proxy as kubeadm writes it, in mode nftables. It runs on all nodes, or on none."""
    NONE = "none"

    @property
    def table(self) -> str:
        """The name of the proxy's nftables table; empty if there is no proxy."""
        tables = {Proxy.KNFT: "knft", Proxy.KUBE_PROXY: "kube-proxy", Proxy.KUBEADM: "kube-proxy", Proxy.NONE: ""}
        return tables[self]


class _Network(Struct, frozen=True):
    """The addresses of one IP family. Only namespaces of the cluster have them."""

    machines: str
    """The network of the control plane and the nodes."""
    pods: str
    services: str
    node_pods: str
    """The pod CIDR of a node, by its number."""

    def address(self, number: int) -> str:
        """Return an address in the network of the machines, such as 11 for node 1."""
        digits = number if ":" not in self.machines else int(str(number), 16)
        return str(ip_network(self.machines)[digits])


_IPV4 = _Network("192.168.100.0/24", "10.244.0.0/16", "10.96.0.0/16", "10.244.{}.0/24")
_IPV6 = _Network("fd00:192:168:100::/64", "fd00:10:244::/56", "fd00:10:96::/112", "fd00:10:244:{}::/64")
_NETWORKS = {Families.DUAL: (_IPV4, _IPV6), Families.IPV4: (_IPV4,), Families.IPV6: (_IPV6,)}
_CONTROL_PLANE = 1
_FIRST_NODE = 10
_API_SERVICE, _DNS_SERVICE = 1, 10


class NodePlan(Struct, frozen=True):
    """A node; the addresses and CIDRs are of the cluster's families, the primary one first."""

    name: str
    zone: str
    proxy: Proxy
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]


class Plan(Struct, frozen=True):
    """A cluster; of two addresses or CIDRs the first is of the primary family."""

    families: Families
    nodes: tuple[NodePlan, ...]
    addresses: tuple[str, ...]
    """The control plane's: it is the nodes' gateway."""
    prefix_lengths: tuple[int, ...]
    """The prefix length of each address of a machine."""
    pod_cidrs: tuple[str, ...]
    service_cidrs: tuple[str, ...]
    dns_addresses: tuple[str, ...]
    """The cluster IPs of the Service kube-dns."""
    api_service_address: str
    """The first address of the Service CIDR, which the API server gives to the Service kubernetes."""

    @property
    def api_host(self) -> str:
        """The address of the API server, as nodes and pods use it."""
        return self.addresses[0]

    @property
    def api_address(self) -> str:
        """The URL of the API server, as nodes use it."""
        return f"https://{url_host(self.api_host)}:{API_PORT}"

    @property
    def has_kubeadm_kube_proxy(self) -> bool:
        """Whether kubeadm's DaemonSet kube-proxy runs."""
        return self.nodes[0].proxy is Proxy.KUBEADM

    @property
    def cluster_cidr(self) -> str:
        """The pod CIDRs, in the form of the flag --cluster-cidr."""
        return ",".join(self.pod_cidrs)

    def node(self, name: str) -> NodePlan:
        """Return a node by its name; raise SetupError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        msg = f"no node {name!r}: the cluster has {', '.join(node.name for node in self.nodes)}"
        raise SetupError(msg)


def url_host(address: str) -> str:
    """Return an address as it is written in a URL."""
    return f"[{address}]" if ":" in address else address


def make_plan(
    nodes: int = 3,
    families: Families = Families.DUAL,
    zones: int = 0,
    proxies: Sequence[Proxy] = (Proxy.KNFT,),
) -> Plan:
    """Return the plan of a cluster; raise SetupError if it cannot be built.

    ``zones`` is the number of zones, to which nodes are assigned in turn; 0 gives each node its own. ``proxies`` are
    the Service proxies of the nodes, the last of which is also that of the nodes after it.
    """
    if not 1 <= nodes <= _MAX_NODES - _FIRST_NODE:
        msg = f"a cluster has 1 to {_MAX_NODES - _FIRST_NODE} nodes, and not {nodes}"
        raise SetupError(msg)
    if zones < 0 or not proxies or len(proxies) > nodes:
        msg = f"{zones} zones and {len(proxies)} Service proxies do not fit {nodes} nodes"
        raise SetupError(msg)
    if Proxy.KUBEADM in proxies and set(proxies) != {Proxy.KUBEADM}:
        msg = "kubeadm's DaemonSet runs on all nodes: give --proxy kubeadm alone"
        raise SetupError(msg)
    networks = _NETWORKS[families]
    return Plan(
        families=families,
        nodes=tuple(_node(number, networks, zones or nodes, proxies) for number in range(1, nodes + 1)),
        addresses=tuple(network.address(_CONTROL_PLANE) for network in networks),
        prefix_lengths=tuple(ip_network(network.machines).prefixlen for network in networks),
        pod_cidrs=tuple(network.pods for network in networks),
        service_cidrs=tuple(network.services for network in networks),
        dns_addresses=tuple(_service_address(network, _DNS_SERVICE) for network in networks),
        api_service_address=_service_address(networks[0], _API_SERVICE),
    )


def _node(number: int, networks: Sequence[_Network], zones: int, proxies: Sequence[Proxy]) -> NodePlan:
    return NodePlan(
        name=f"node{number}",
        zone=f"zone-{(number - 1) % zones + 1}",
        proxy=proxies[min(number, len(proxies)) - 1],
        addresses=tuple(network.address(_FIRST_NODE + number) for network in networks),
        pod_cidrs=tuple(network.node_pods.format(number) for network in networks),
    )


def _service_address(network: _Network, number: int) -> str:
    cidr: IPv4Network | IPv6Network = ip_network(network.services)
    # The same digits in both families.
    return str(cidr[number if cidr.version == 4 else int(str(number), 16)])  # noqa: PLR2004 - IPv4
