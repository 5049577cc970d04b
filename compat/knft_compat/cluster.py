"""What a sync of kube-proxy sees of one family: the node, the flags that all modes share, and the Service ports."""

from msgspec import Struct, structs

from knft.model.endpoint import Endpoint
from knft.model.names import Family, NamespacedName
from knft.model.plan import ServicePlan

LOOPBACK_ADDRESSES = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
"""The loopback address that every machine has."""

LOOPBACK_NETWORKS = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}
"""All loopback addresses."""


class ServedPort(Struct, frozen=True):
    """A Service port: what is decided about it, and all its endpoints, sorted by key, in whatever condition.

    ``plan.frontends`` leaves out what another Service has won; kube-proxy knows no such thing, and its modes write
    down every claim of ``plan.port``.
    """

    plan: ServicePlan
    endpoints: tuple[Endpoint, ...]


class Node(Struct, frozen=True):
    """The node in one family; ``ip`` is None where nobody says it.

    ``local_addresses`` are those of all its interfaces but loopback and kube-proxy's own device, sorted.
    ``nodeport_cidrs`` are the networks whose local addresses accept NodePorts, () where all do (I.5).
    """

    family: Family
    ip: str | None = None
    local_addresses: tuple[str, ...] = ()
    nodeport_cidrs: tuple[str, ...] = ()

    @property
    def known_ip(self) -> str:
        """Its address, or loopback's where nobody says it, as with kube-proxy (I.5)."""
        return self.ip or LOOPBACK_ADDRESSES[self.family]


class LocalTraffic(Struct, frozen=True):
    """How iptables tells this cluster's pods from others (I.6): arguments that match the ones, and the others."""

    is_local: tuple[str, ...]
    is_not_local: tuple[str, ...]


class Masquerade(Struct, frozen=True):
    """Whether all traffic to cluster IPs is masqueraded, the mark that asks for it, and whether ports are random."""

    everything: bool = False
    mark: int = 1 << 14
    random_fully: bool = True

    @property
    def mark_text(self) -> str:
        """The mark as kube-proxy writes it."""
        return f"{self.mark:#010x}"


class Cluster(Struct, frozen=True):
    """All that a mode is a function of, but its own flags.

    ``ports`` are sorted by name, where kube-proxy follows the order of a hash table. ``before`` are those of the sync
    before, None where this is the first one; ``has_moved`` tells whether the node was in another zone then.
    ``local_traffic`` is None where pods cannot be told from others.
    """

    node: Node
    ports: tuple[ServedPort, ...]
    before: tuple[ServedPort, ...] | None = None
    local_traffic: LocalTraffic | None = None
    masquerade: Masquerade = Masquerade()
    has_moved: bool = False

    @property
    def family(self) -> Family:
        """The IP family."""
        return self.node.family

    def changed_since(self) -> frozenset[NamespacedName]:
        """Return the Services whose ports or endpoints differ from the sync before; raise LookupError without one.

        Who owns a frontend does not count, for kube-proxy knows no such thing, nor does the time a Service was made.
        kube-proxy compares whole slices (A.5): it also writes Services of which only a slice's version is another.
        """
        if self.before is None:
            msg = "there was no sync before"
            raise LookupError(msg)
        now, then = ({(port.plan.name, _tracked(port)) for port in ports} for ports in (self.ports, self.before))
        return frozenset(name.service for name, _ in now ^ then)


def _tracked(served: ServedPort) -> tuple[object, ...]:
    return structs.replace(served.plan.port, created=""), served.endpoints
