"""NodeView: the node's addresses and CIDRs in one IP family."""

from msgspec import Struct

from knft.families import Family


class NodeView(Struct, frozen=True):
    """The node's name, zone, addresses and CIDRs in one IP family.

    ``node_ip`` is the node's own address of the family, or None. ``nodeport_ips`` are the addresses that accept
    NodePort traffic, never loopback; they are ignored if the configuration makes every local address accept it.
    ``service_cidrs`` are the ranges of cluster IPs. ``pod_cidr`` is the range whose traffic counts as local
    (docs/behaviour/configuration.md#local-traffic), None if it is unknown or if interfaces, and not addresses, decide.
    """

    family: Family
    name: str
    zone: str = ""
    node_ip: str | None = None
    nodeport_ips: frozenset[str] = frozenset()
    service_cidrs: tuple[str, ...] = ()
    pod_cidr: str | None = None
