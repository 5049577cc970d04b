"""Links, addresses, routes and connection tracking, by netlink: the only place that imports pyroute2."""

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute  # type: ignore[import-untyped]
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTSocket  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.ifaddrmsg import IFA_F_NODAD  # type: ignore[import-untyped]

from .namespace import Namespace
from .plan import Addresses

_FORWARDING = 3  # BR_STATE_FORWARDING


class Netlink:
    """Netlink in one namespace; made by ``netlink`` below, and used by the thread that made it."""

    def __init__(self, route: IPRoute) -> None:
        """Speak through ``route``, which was opened in the namespace."""
        self._route = route

    def up(self, name: str) -> None:
        """Bring a link up."""
        self._route.link("set", index=self._index(name), state="up")

    def add_bridge(self, name: str, mac: str) -> None:
        """Make a bridge that is only a switch, and bring it up."""
        self._route.link(
            "add",
            ifname=name,
            kind="bridge",
            # Without an own address, the bridge takes its lowest port's, and neighbours go stale with each new port.
            address=mac,
            br_stp_state=0,
            br_forward_delay=0,
            # Nobody here sends queries, and neighbour discovery must reach every port.
            br_mcast_snooping=0,
            state="up",
        )

    def add_cable(self, name: str, bridge: str, far_end: Namespace) -> None:
        """Lay a veth pair from a port of ``bridge`` to ``eth0`` in another namespace."""
        self._route.link(
            "add",
            ifname=name,
            kind="veth",
            master=self._index(bridge),
            peer={"ifname": "eth0", "net_ns_fd": far_end.fd},
            state="up",
        )

    def allow_hairpin(self, port: str) -> None:
        """Let a bridge send packets out of the port they came from, as kubelets do for pods.

        With bridge-nf-call-iptables, a pod that reaches itself through a Service needs it.
        """
        self._route.brport("set", index=self._index(port), mode=1)

    def delete(self, name: str) -> None:
        """Delete a link, and the other end of its cable with it."""
        self._route.link("del", index=self._index(name))

    def add_addresses(self, name: str, addresses: Addresses, *, by_default: bool = True) -> None:
        """Give a link an address of each family, usable at once; clients use those not ``by_default`` only by name."""
        index = self._index(name)
        # An IPv4 address after the first is secondary anyhow; of IPv6 addresses the kernel prefers the newest.
        lifetime = {} if by_default else {"preferred": 0}
        self._route.addr("add", index=index, address=addresses.ipv4, prefixlen=24)
        self._route.addr("add", index=index, address=addresses.ipv6, prefixlen=64, flags=IFA_F_NODAD, **lifetime)

    def add_own_addresses(self, addresses: Addresses) -> None:
        """Give the host addresses that belong to no network; clients use them only by name."""
        index = self._index("lo")
        self._route.addr("add", index=index, address=addresses.ipv4, prefixlen=32)
        self._route.addr("add", index=index, address=addresses.ipv6, prefixlen=128, flags=IFA_F_NODAD, preferred=0)

    def remove_own_addresses(self, addresses: Addresses) -> None:
        """Take them away again."""
        index = self._index("lo")
        self._route.addr("del", index=index, address=addresses.ipv4, prefixlen=32)
        self._route.addr("del", index=index, address=addresses.ipv6, prefixlen=128)

    def add_routes(self, networks: Addresses, gateway: Addresses) -> None:
        """Send both networks through the gateway."""
        self._route.route("add", dst=networks.ipv4, gateway=gateway.ipv4)
        self._route.route("add", dst=networks.ipv6, gateway=gateway.ipv6, family=socket.AF_INET6)

    def own_network(self, networks: Addresses) -> None:
        """Make every address of both networks one of this host's, without adding a single one."""
        for network, family in ((networks.ipv4, socket.AF_INET), (networks.ipv6, socket.AF_INET6)):
            scope = {"scope": "host"} if family == socket.AF_INET else {}
            index = self._index("lo")
            self._route.route("add", dst=network, type="local", oif=index, table=255, family=family, **scope)

    def add_black_hole(self) -> None:
        """Drop in silence, in both families, what there is no other route for."""
        self._route.route("add", dst="default", type="blackhole", family=socket.AF_INET)
        self._route.route("add", dst="default", type="blackhole", family=socket.AF_INET6)

    def wait_for_ports(self, names: Iterable[str], timeout: float = 30.0) -> None:
        """Return when the bridge ports forward: the kernel notices their carrier only a moment later."""
        deadline = time.monotonic() + timeout
        waiting = set(names)
        while waiting:
            if time.monotonic() > deadline:
                msg = f"these bridge ports do not come up: {', '.join(sorted(waiting))}"
                raise TimeoutError(msg)
            waiting = {name for name in waiting if not self._forwards(name)}

    def _forwards(self, name: str) -> bool:
        (link,) = self._route.get_links(self._index(name))
        info = link.get(("linkinfo", "slave_data"))
        return bool(info is not None and info.get("state") == _FORWARDING)

    def _index(self, name: str) -> int:
        (index,) = self._route.link_lookup(ifname=name)
        return int(index)


@contextmanager
def netlink(namespace: Namespace) -> Iterator[Netlink]:
    """Enter the namespace and speak netlink there; the calling thread stays in it meanwhile."""
    with namespace.entered(), IPRoute() as route:
        yield Netlink(route)


def forget_flows(namespace: Namespace) -> None:
    """Empty the namespace's connection tracking, of both families.

    New rules do not change where a known flow goes, and over UDP a new client may be given the ports of an old one.
    """
    with namespace.entered(), NFCTSocket() as conntrack:
        conntrack.flush()
