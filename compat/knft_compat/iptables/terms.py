"""What holds for every rule of a sync: the flags and the node, thought through once."""

from msgspec import Struct

from knft.model import addresses
from knft.model.names import Family
from knft_compat.cluster import Cluster, LocalTraffic, Masquerade
from knft_compat.iptables.settings import Settings

_LARGE = 1000


class Terms(Struct, frozen=True):
    """The terms of a sync.

    ``localhost`` tells whether NodePorts are served on loopback addresses, ``has_nfacct`` whether there are counters,
    ``is_large`` whether the cluster is one whose rules have few comments.
    """

    family: Family
    node_ip: str
    localhost: bool
    has_nfacct: bool
    is_large: bool
    masquerade: Masquerade
    local_traffic: LocalTraffic | None


def terms_of(cluster: Cluster, settings: Settings) -> Terms:
    """Return the terms of a sync of ``cluster``."""
    return Terms(
        family=cluster.family,
        node_ip=cluster.node.known_ip,
        localhost=_serves_localhost(cluster, settings),
        has_nfacct=settings.has_nfacct,
        is_large=sum(len(port.endpoints) for port in cluster.ports) > _LARGE,
        masquerade=cluster.masquerade,
        local_traffic=cluster.local_traffic,
    )


def _serves_localhost(cluster: Cluster, settings: Settings) -> bool:
    """Tell whether NodePorts answer on 127.0.0.0/8: wanted, and not excluded by the NodePort addresses (D.1)."""
    if cluster.family is not Family.IPV4 or not settings.localhost_node_ports:
        return False
    cidrs = cluster.node.nodeport_cidrs
    return not cidrs or any(addresses.overlaps_loopback(cidr) for cidr in cidrs)
