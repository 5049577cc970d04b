"""Finds kube-proxy's virtual servers.

kube-proxy itself flushes all of IPVS (docs/behaviour/ipvs.md#cleanup). knft only removes virtual servers at an address
of kube-proxy's device or in one of its ipsets, and NodePorts at an address of this machine. Other servers, such as
those of a load balancer on the same machine, stay. Servers by firewall mark are never kube-proxy's.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from knft.leftovers.names import NODE_PORT_SETS, ipv6_set

# The format of net/netfilter/ipvs/ip_vs_ctl.c: hexadecimal, IPv6 addresses with all digits.
_SERVER = re.compile(r"^(TCP|UDP|SCTP) +(?:([0-9A-F]{8})|\[([0-9a-f:]{39})\]):([0-9A-F]{4}) ", re.MULTILINE)
_NODE_PORT_SET_PROTOCOLS = {
    name: protocol for ipv4, protocol in NODE_PORT_SETS.items() for name in (ipv4, ipv6_set(ipv4))
}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A virtual server with an address; the protocol is in lower case."""

    address: IPv4Address | IPv6Address
    protocol: str
    port: int

    def __str__(self) -> str:
        address = f"[{self.address}]" if isinstance(self.address, IPv6Address) else str(self.address)
        return f"{self.protocol} {address}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The virtual servers to remove, and those that are not known to be kube-proxy's."""

    remove: tuple[ServerAddress, ...]
    keep: tuple[ServerAddress, ...]


def parse_servers(text: str) -> tuple[ServerAddress, ...]:
    """Parse ``/proc/net/ip_vs``, without servers by firewall mark."""
    return tuple(
        ServerAddress(IPv6Address(ipv6) if ipv6 else IPv4Address(int(ipv4, 16)), protocol.lower(), int(port, 16))
        for protocol, ipv4, ipv6, port in _SERVER.findall(text)
    )


def plan_servers(
    servers: Collection[ServerAddress],
    device_addresses: Collection[str],
    local_addresses: Collection[str],
    set_members: Mapping[str, str],
) -> ServerPlan:
    """Return which virtual servers are kube-proxy's.

    ``device_addresses`` are the addresses of DEVICE, ``local_addresses`` those of the machine. ``set_members`` is the
    output of ``ipset save`` by name, for each of SERVER_SETS that exists.
    """
    on_device = set(map(ip_address, device_addresses))
    local = set(map(ip_address, local_addresses))
    in_frontend_sets = {server for text in set_members.values() for server in _frontends(text)}
    node_ports = {
        node_port
        for name, text in set_members.items()
        if name in _NODE_PORT_SET_PROTOCOLS
        for node_port in _node_ports(name, text)
    }

    def belongs_to_kube_proxy(server: ServerAddress) -> bool:
        at_node_port = server.address in local and (server.address.version, server.protocol, server.port) in node_ports
        return server.address in on_device or server in in_frontend_sets or at_node_port

    return ServerPlan(
        remove=tuple(server for server in servers if belongs_to_kube_proxy(server)),
        keep=tuple(sorted((server for server in servers if not belongs_to_kube_proxy(server)), key=str)),
    )


def _frontends(text: str) -> Iterator[ServerAddress]:
    """Yield the virtual servers in the output of ``ipset save`` for one of FRONTEND_SETS."""
    for address, protocol, port in re.findall(r"^add \S+ ([0-9a-f.:]+),(tcp|udp|sctp):(\d+)$", text, re.MULTILINE):
        yield ServerAddress(ip_address(address), protocol, int(port))


def _node_ports(name: str, text: str) -> Iterator[tuple[int, str, int]]:
    """Yield IP version, protocol and NodePort from the output of ``ipset save`` for one of NODE_PORT_SETS."""
    version = 6 if name.startswith("KUBE-6-") else 4
    for port in re.findall(r"^add \S+ (\d+)$", text, re.MULTILINE):
        yield version, _NODE_PORT_SET_PROTOCOLS[name], int(port)
