"""The input of a kube-proxy sync for one family: the node, the flags that all modes share, and the Service ports."""

from msgspec import Struct, structs

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName
from knft.model.plan import ServicePlan

LOOPBACK_ADDRESSES = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
"""The loopback address of each family."""

LOOPBACK_NETWORKS = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}
"""The network of loopback addresses of each family."""


class PlannedPort(Struct, frozen=True):
    """A Service port: its plan, and all its endpoints, sorted by key, whether ready or not.

    Modes iptables and ipvs write rules for every frontend of ``plan.port``. They ignore ``plan.frontends``, which omits
    contested frontends that another Service owns: kube-proxy does not detect contested frontends.
    """

    plan: ServicePlan
    endpoints: tuple[Endpoint, ...]


class Node(Struct, frozen=True):
    """The node in one family; ``ip`` is None if it is unknown.

    ``local_addresses`` are the sorted addresses of its interfaces, except loopback and kube-ipvs0. ``nodeport_cidrs``
    are the networks whose addresses accept NodePorts, () for all (docs/behaviour/configuration.md#node-addresses).
    """

    family: Family
    ip: str | None = None
    local_addresses: tuple[str, ...] = ()
    nodeport_cidrs: tuple[str, ...] = ()

    @property
    def ip_or_loopback(self) -> str:
        """The node's address; like kube-proxy, the loopback address if it is unknown."""
        return self.ip or LOOPBACK_ADDRESSES[self.family]


class LocalTrafficMatch(Struct, frozen=True):
    """iptables arguments that match packets from local pods, and packets from elsewhere.

    docs/behaviour/configuration.md#local-traffic describes how kube-proxy detects local traffic.
    """

    if_local: tuple[str, ...]
    if_not_local: tuple[str, ...]


class Masquerade(Struct, frozen=True):
    """Whether all traffic to cluster IPs is masqueraded, the mark of masquerading, and whether ports are random."""

    masquerade_all: bool = False
    mark: int = 1 << 14
    random_fully: bool = True

    @property
    def mark_text(self) -> str:
        """The mark in kube-proxy's format."""
        return f"{self.mark:#010x}"


class SyncInput(Struct, frozen=True):
    """Everything that a sync in any mode depends on, except the mode's own flags.

    ``ports`` are sorted by name; kube-proxy's order is that of a hash table. ``previous_ports`` are those of the
    previous sync, None for the first sync; ``zone_changed`` tells whether the node was in another zone then.
    ``local_traffic_match`` is None if local traffic cannot be detected.
    """

    node: Node
    ports: tuple[PlannedPort, ...]
    previous_ports: tuple[PlannedPort, ...] | None = None
    local_traffic_match: LocalTrafficMatch | None = None
    masquerade: Masquerade = Masquerade()
    zone_changed: bool = False
    service_cidrs: tuple[str, ...] = ()
    """The ranges of cluster IPs; only mode nftables uses them."""

    @property
    def family(self) -> Family:
        """The IP family."""
        return self.node.family

    def changed_services(self) -> frozenset[NamespacedName]:
        """Return the Services whose ports or endpoints changed since the previous sync; raise LookupError without one.

        Owners of contested frontends and creation times of Services do not count, since kube-proxy ignores them.
        kube-proxy compares whole slices (docs/behaviour/tracking.md#endpoint-slices), so it also writes Services of
        which only the resource version of a slice changed.
        """
        if self.previous_ports is None:
            msg = "there is no previous sync"
            raise LookupError(msg)
        current, previous = (
            {(port.plan.name, _compared_fields(port)) for port in ports} for ports in (self.ports, self.previous_ports)
        )
        return frozenset(name.service for name, _ in current ^ previous)


def _compared_fields(port: PlannedPort) -> tuple[object, ...]:
    return structs.replace(port.plan.port, creation_timestamp=""), port.endpoints
