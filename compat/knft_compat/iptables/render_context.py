"""Values that many rules of a sync depend on, computed once from the flags and the node."""

from msgspec import Struct

from knft.families import Family
from knft.model import addresses
from knft_compat.iptables.settings import Settings
from knft_compat.sync_input import LocalTrafficMatch, Masquerade, SyncInput

_LARGE_CLUSTER_ENDPOINTS = 1000


class RenderContext(Struct, frozen=True):
    """Values that many rules of a sync depend on.

    ``localhost_node_ports`` tells whether NodePorts are served on loopback addresses, ``has_nfacct`` whether the kernel
    has counters, ``is_large_cluster`` whether comments about endpoints are omitted.
    """

    family: Family
    node_ip: str
    localhost_node_ports: bool
    has_nfacct: bool
    is_large_cluster: bool
    masquerade: Masquerade
    local_traffic_match: LocalTrafficMatch | None


def render_context(sync_input: SyncInput, settings: Settings) -> RenderContext:
    """Return the context of a sync."""
    return RenderContext(
        family=sync_input.family,
        node_ip=sync_input.node.ip_or_loopback,
        localhost_node_ports=_has_localhost_node_ports(sync_input, settings),
        has_nfacct=settings.has_nfacct,
        is_large_cluster=sum(len(port.endpoints) for port in sync_input.ports) > _LARGE_CLUSTER_ENDPOINTS,
        masquerade=sync_input.masquerade,
        local_traffic_match=sync_input.local_traffic_match,
    )


def _has_localhost_node_ports(sync_input: SyncInput, settings: Settings) -> bool:
    """Return whether NodePorts are served on 127.0.0.0/8: enabled, and allowed by the NodePort addresses."""
    if sync_input.family is not Family.IPV4 or not settings.localhost_node_ports:
        return False
    cidrs = sync_input.node.nodeport_cidrs
    return not cidrs or any(addresses.overlaps_loopback(cidr) for cidr in cidrs)
