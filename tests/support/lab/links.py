"""Links, addresses, routes and conntrack entries of a namespace, by netlink (pyroute2)."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyroute2 import IPRoute  # type: ignore[import-untyped]
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTSocket  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.ifaddrmsg import IFA_F_NODAD, IFA_F_TENTATIVE  # type: ignore[import-untyped]

from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Addresses
from tests.support.waiting import wait_until

_FORWARDING = 3  # BR_STATE_FORWARDING
# Beginnings of addresses, as /proc writes them.
_LINK_LOCAL = "fe80"
_SOLICITED_NODE = "ff0200000000000000000001ff"
_HOST_LENGTH = "80"
_RTF_LOCAL = 0x80000000


class Netlink:
    """Netlink in one namespace. ``netlink`` makes it, and only the thread that made it uses it."""

    def __init__(self, route: IPRoute) -> None:
        """Use ``route``, which was opened in the namespace."""
        self._route = route

    def up(self, name: str) -> None:
        """Bring a link up."""
        self._route.link("set", index=self._index(name), state="up")

    def limit_segments(self, name: str, segments: int) -> None:
        """Let new TCP connections send at most this number of segments through a link in one packet."""
        self._route.link("set", index=self._index(name), gso_max_segs=segments)

    def add_bridge(self, name: str, mac: str) -> None:
        """Add a bridge without spanning tree and multicast snooping, and bring it up."""
        self._route.link(
            "add",
            ifname=name,
            kind="bridge",
            # Otherwise it takes the lowest address of its ports, and a new port makes neighbor entries stale.
            address=mac,
            br_stp_state=0,
            br_forward_delay=0,
            # There is no multicast querier here, and neighbor discovery must reach every port.
            br_mcast_snooping=0,
            state="up",
        )

    def add_veth(self, name: str, bridge: str, far_end: Namespace) -> None:
        """Add a veth pair: ``name``, a port of ``bridge``, and ``eth0`` in another namespace."""
        self._route.link(
            "add",
            ifname=name,
            kind="veth",
            master=self._index(bridge),
            peer={"ifname": "eth0", "net_ns_fd": far_end.fd},
            state="up",
        )

    def allow_hairpin(self, port: str) -> None:
        """Let a bridge send packets out of the port they came from, as the kubelet does for pods.

        With bridge-nf-call-iptables, a pod needs it to reach itself through a Service.
        """
        self._route.brport("set", index=self._index(port), mode=1)

    def delete(self, name: str) -> None:
        """Delete a link, and its peer with it."""
        self._route.link("del", index=self._index(name))

    def add_addresses(self, name: str, addresses: Addresses, *, by_default: bool = True) -> None:
        """Add an address of each family; clients choose one that is not ``by_default`` only explicitly."""
        index = self._index(name)
        # An IPv4 address after the first is secondary; of IPv6 addresses the kernel prefers the newest.
        lifetime = {} if by_default else {"preferred": 0}
        self._route.addr("add", index=index, address=addresses.ipv4, prefixlen=24)
        self._route.addr("add", index=index, address=addresses.ipv6, prefixlen=64, flags=IFA_F_NODAD, **lifetime)

    def add_loopback_addresses(self, addresses: Addresses) -> None:
        """Add host addresses to the loopback device; clients choose them only explicitly."""
        self.add_loopback_address(addresses.ipv4)
        self.add_loopback_address(addresses.ipv6)

    def add_loopback_address(self, address: str) -> None:
        """Add a host address to the loopback device, and return when it can be reached."""
        index = self._index("lo")
        if ":" not in address:
            self._route.addr("add", index=index, address=address, prefixlen=32)
            return
        self._route.addr("add", index=index, address=address, prefixlen=128, flags=IFA_F_NODAD, preferred=0)
        packed = socket.inet_pton(socket.AF_INET6, address).hex()
        wait_until(lambda: packed in _local_ipv6_addresses(), f"the kernel adds no route to {address}")

    def add_peer_addresses(self, name: str, addresses: Addresses, peer: Addresses) -> None:
        """Add addresses of a point-to-point link, with those of its other end."""
        index = self._index(name)
        self._route.addr("add", index=index, local=addresses.ipv4, address=peer.ipv4, prefixlen=32)
        self._route.addr("add", index=index, local=addresses.ipv6, address=peer.ipv6, prefixlen=128, flags=IFA_F_NODAD)

    def remove_loopback_addresses(self, addresses: Addresses) -> None:
        """Remove such addresses."""
        index = self._index("lo")
        self._route.addr("del", index=index, address=addresses.ipv4, prefixlen=32)
        self._route.addr("del", index=index, address=addresses.ipv6, prefixlen=128)

    def add_routes(self, networks: Addresses, gateway: Addresses) -> None:
        """Route the networks of both families through the gateway."""
        self._route.route("add", dst=networks.ipv4, gateway=gateway.ipv4)
        self._route.route("add", dst=networks.ipv6, gateway=gateway.ipv6, family=socket.AF_INET6)

    def remove_routes(self, networks: Addresses, gateway: Addresses) -> None:
        """Remove such routes."""
        self._route.route("del", dst=networks.ipv4, gateway=gateway.ipv4)
        self._route.route("del", dst=networks.ipv6, gateway=gateway.ipv6, family=socket.AF_INET6)

    def add_local_networks(self, networks: Addresses) -> None:
        """Make all addresses of both networks local addresses of this host, by a route of type local."""
        for network, family in ((networks.ipv4, socket.AF_INET), (networks.ipv6, socket.AF_INET6)):
            scope = {"scope": "host"} if family == socket.AF_INET else {}
            index = self._index("lo")
            self._route.route("add", dst=network, type="local", oif=index, table=255, family=family, **scope)

    def add_blackhole_routes(self) -> None:
        """Drop packets that match no other route, without an ICMP error, in both families."""
        self._route.route("add", dst="default", type="blackhole", family=socket.AF_INET)
        self._route.route("add", dst="default", type="blackhole", family=socket.AF_INET6)

    def wait_for_ports(self, names: Iterable[str]) -> None:
        """Return when the bridge ports forward: the kernel detects their carrier in a work queue."""
        for name in names:
            wait_until(partial(self._forwards, name), f"bridge port {name} does not forward")

    def wait_for_neighbor_discovery(self, name: str) -> None:
        """Return when the link answers neighbor solicitations for all its IPv6 addresses, and can send its own.

        The kernel adds the link-local address once the link has a carrier, and joins the solicited-node multicast group
        of each address in a work queue, also without duplicate address detection. A solicitation that comes earlier is
        lost, and repeated a second later. A solicitation that a router sends for a packet it forwards has the
        link-local address as its source.
        """
        wait_until(lambda: _answers_solicitations(name), f"IPv6 is not ready on {name}")

    def _forwards(self, name: str) -> bool:
        (link,) = self._route.get_links(self._index(name))
        info = link.get(("linkinfo", "slave_data"))
        return bool(info is not None and info.get("state") == _FORWARDING)

    def _index(self, name: str) -> int:
        (index,) = self._route.link_lookup(ifname=name)
        return int(index)


def _answers_solicitations(link: str) -> bool:
    """Tell whether a link of the calling thread's namespace has joined the groups of its IPv6 addresses."""
    # Address, index, prefix length, scope, flags, name.
    lines = [line.split() for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines()]
    addresses = {words[0]: int(words[4], 16) for words in lines if words[5] == link}
    # Index, name, group, ...
    members = [line.split()[1:3] for line in Path("/proc/thread-self/net/igmp6").read_text().splitlines()]
    groups = {group for name, group in members if name == link}
    return (
        any(address.startswith(_LINK_LOCAL) for address in addresses)
        and not any(flags & IFA_F_TENTATIVE for flags in addresses.values())
        and all(_SOLICITED_NODE + address[-6:] in groups for address in addresses)
        and addresses.keys() <= _local_ipv6_addresses()
    )


def _local_ipv6_addresses() -> set[str]:
    """Return the addresses, as /proc writes them, that packets of the calling thread's namespace can reach on itself.

    The kernel adds the local route of an IPv6 address in a work queue, also without duplicate address detection: a
    connection before that fails with ENETUNREACH.
    """
    # Destination, prefix length, source, prefix length, next hop, metric, references, uses, flags, name.
    lines = [line.split() for line in Path("/proc/thread-self/net/ipv6_route").read_text().splitlines()]
    return {words[0] for words in lines if words[1] == _HOST_LENGTH and int(words[8], 16) & _RTF_LOCAL}


@contextmanager
def netlink(namespace: Namespace) -> Iterator[Netlink]:
    """Open netlink in the namespace; the calling thread is in the namespace during the block."""
    with namespace.entered(), IPRoute() as route:
        yield Netlink(route)


def flush_conntrack(namespace: Namespace) -> None:
    """Delete all conntrack entries of the namespace, of both families.

    New rules do not change the translation of a known flow, and a new UDP client may get the port of an old one.
    """
    with namespace.entered(), NFCTSocket() as conntrack:
        conntrack.flush()
