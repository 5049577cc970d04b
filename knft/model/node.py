"""NodeView: what one family's table needs to know about the node it is on."""

from msgspec import Struct

from knft.families import Family


class NodeView(Struct, frozen=True):
    """The node, seen from one family.

    ``node_ip`` is the node's own address of the family, or None where it has none. ``nodeport_ips`` are the
    addresses that accept NodePort traffic, never loopback; they do not count where the configuration says that
    every local address accepts it. ``service_cidrs`` are the ranges that cluster IPs
    come from, ``pod_cidr`` the range of pods that count as local, None where addresses do not tell or it is not known.
    """

    family: Family
    name: str
    zone: str = ""
    node_ip: str | None = None
    nodeport_ips: frozenset[str] = frozenset()
    service_cidrs: tuple[str, ...] = ()
    pod_cidr: str | None = None
