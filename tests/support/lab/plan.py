"""The address plan: the addresses of each host and network, in both families.

::

    lan 192.0.2.0/24, 2001:db8:1::/64
     |-- .1    a router without routes: drops what it has to forward, without an ICMP error
     |-- .11   node    = node-1, under test -- cni0 10.244.1.1 -- local-1 .11, local-2 .12, ...
     |-- .12   remote  = node-2             -- cni0 10.244.2.1 -- remote-1 .11, remote-2 .12, ...
     `-- .100  outside (and .101): a client that routes Service, pod and external addresses to node

IPv6 has the same last digits everywhere: local-1 is 10.244.1.11 and fd00:10:244:1::11.
"""

from dataclasses import dataclass
from typing import Literal

Version = Literal[4, 6]


@dataclass(frozen=True, slots=True)
class Addresses:
    """One address of each family."""

    ipv4: str
    ipv6: str

    def of(self, version: Version) -> str:
        """Return the address of that family."""
        return self.ipv4 if version == 4 else self.ipv6


@dataclass(frozen=True, slots=True)
class Subnet:
    """One network of each family, given by the beginning of its addresses."""

    ipv4_start: str
    ipv6_start: str

    def at(self, number: int) -> Addresses:
        """Return the addresses that end in ``number``, in decimal digits for IPv6 too."""
        return Addresses(f"{self.ipv4_start}.{number}", f"{self.ipv6_start}::{number}")

    @property
    def cidrs(self) -> Addresses:
        """The networks, with their prefix lengths."""
        return Addresses(f"{self.ipv4_start}.0/24", f"{self.ipv6_start}::/64")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: the name of its host in the lab, its name in Kubernetes, and the prefix of its pods' names."""

    host: str
    node_name: str
    lan: Addresses
    pods: Subnet
    pod_prefix: str

    @property
    def gateway(self) -> Addresses:
        """The node's own addresses on the bridge of its pods."""
        return self.pods.at(1)

    def pod_name(self, number: int) -> str:
        """Return the name of the pod with that number, from 1."""
        return f"{self.pod_prefix}-{number}"

    def pod_addresses(self, number: int) -> Addresses:
        """Return the addresses of the pod with that number, from 1."""
        return self.pods.at(10 + number)


LAN = Subnet("192.0.2", "2001:db8:1")
BLACKHOLE_GATEWAY = LAN.at(1)
NODE = NodePlan("node", "node-1", LAN.at(11), Subnet("10.244.1", "fd00:10:244:1"), "local")
REMOTE = NodePlan("remote", "node-2", LAN.at(12), Subnet("10.244.2", "fd00:10:244:2"), "remote")
NODES = (NODE, REMOTE)
OUTSIDE = LAN.at(100)
SECOND_OUTSIDE = LAN.at(101)
"""A second address of ``outside``, for a second client: pass it to ``dial`` as ``source``."""

SERVICES = Addresses("10.96.0.0/16", "fd00:10:96::/112")
CLUSTER = Addresses("10.244.0.0/16", "fd00:10:244::/48")
EXTERNAL = Addresses("203.0.113.0/24", "2001:db8:cb::/64")
ROUTED_TO_NODE = (SERVICES, CLUSTER, EXTERNAL)
"""The networks that ``outside`` routes to the node under test."""
