"""kube-proxy's ipsets, as input of ``ipset restore`` (docs/behaviour/ipvs.md#ipsets)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.families import Family
from knft.leftovers.names import ipv6_set
from knft_compat.ipvs.names import (
    BOUND_IPS,
    CLUSTER_IPS,
    EXTERNAL_IPS,
    HAIRPINS,
    HEALTH_CHECK_NODE_PORTS,
    LOAD_BALANCER_SET,
    LOCAL_EXTERNAL_IPS,
    LOCAL_LOAD_BALANCERS,
    LOCAL_NODE_PORT_SETS,
    NODE_PORT_SETS,
    SOURCE_CIDRS,
    SOURCE_IPS,
    SOURCE_RESTRICTED_LOAD_BALANCERS,
)

BITMAP = "bitmap:port"
HASH_SIZE, MAX_ENTRIES = 1024, 65536
"""Sizes of the sets of type hash; a bitmap cannot be full, since a port number is less than 65536."""
_PORT_RANGE = "0-65535"
_FAMILIES = {Family.IPV4: "inet", Family.IPV6: "inet6"}


class SetKind(Struct, frozen=True):
    """A set of kube-proxy: its IPv4 name, its type, and the comment of its rules.

    Only iptables rules have the comment; the set and its entries have none.
    """

    name: str
    type: str
    comment: str

    def name_in(self, family: Family) -> str:
        """Return the set's name in a family."""
        return self.name if family is Family.IPV4 else ipv6_set(self.name)


SETS = {
    kind.name: kind
    for kind in (
        SetKind(HAIRPINS, "hash:ip,port,ip",
                "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"),
        SetKind(CLUSTER_IPS, "hash:ip,port",
                "Kubernetes service cluster ip + port for masquerade purpose"),
        SetKind(EXTERNAL_IPS, "hash:ip,port",
                "Kubernetes service external ip + port for masquerade and filter purpose"),
        SetKind(LOCAL_EXTERNAL_IPS, "hash:ip,port",
                "Kubernetes service external ip + port with externalTrafficPolicy=local"),
        SetKind(LOAD_BALANCER_SET, "hash:ip,port", "Kubernetes service lb portal"),
        SetKind(SOURCE_RESTRICTED_LOAD_BALANCERS, "hash:ip,port",
                "Kubernetes service load balancer ip + port for load balancer with sourceRange"),
        SetKind(LOCAL_LOAD_BALANCERS, "hash:ip,port",
                "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"),
        SetKind(SOURCE_IPS, "hash:ip,port,ip",
                "Kubernetes service load balancer ip + port + source IP for packet filter purpose"),
        SetKind(SOURCE_CIDRS, "hash:ip,port,net",
                "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"),
        SetKind(NODE_PORT_SETS["TCP"], BITMAP, "Kubernetes nodeport TCP port for masquerade purpose"),
        SetKind(LOCAL_NODE_PORT_SETS["TCP"], BITMAP,
                "Kubernetes nodeport TCP port with externalTrafficPolicy=local"),
        SetKind(NODE_PORT_SETS["UDP"], BITMAP, "Kubernetes nodeport UDP port for masquerade purpose"),
        SetKind(LOCAL_NODE_PORT_SETS["UDP"], BITMAP,
                "Kubernetes nodeport UDP port with externalTrafficPolicy=local"),
        SetKind(NODE_PORT_SETS["SCTP"], "hash:ip,port",
                "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"),
        SetKind(LOCAL_NODE_PORT_SETS["SCTP"], "hash:ip,port",
                "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"),
        SetKind(HEALTH_CHECK_NODE_PORTS, BITMAP, "Kubernetes health check node port"),
        SetKind(BOUND_IPS, "hash:ip", "Addresses on the ipvs interface"),
    )
}  # fmt: skip
"""All sets by their IPv4 names, in kube-proxy's order."""


class FilledSet(Struct, frozen=True):
    """A set of one family: its entries, and the stale entries of the previous sync."""

    name: str
    type: str
    family: Family
    comment: str
    entries: tuple[str, ...]
    stale: tuple[str, ...] = ()

    def text(self) -> Iterator[str]:
        """Yield lines that create the set, delete stale entries and add all entries."""
        yield f"# {self.comment}"
        if self.type == BITMAP:
            yield f"create {self.name} {self.type} range {_PORT_RANGE}"
        else:
            sizes = f"hashsize {HASH_SIZE} maxelem {MAX_ENTRIES}"
            yield f"create {self.name} {self.type} family {_FAMILIES[self.family]} {sizes}"
        for entry in self.stale:
            yield f"del {self.name} {entry}"
        for entry in self.entries:
            yield f"add {self.name} {entry}"


class FilledSets(Struct, frozen=True, tag="ipset"):
    """All sets of a family.

    kube-proxy creates the sets before it changes virtual servers and fills them afterwards; no rule changes in between,
    so filling them at once has the same result. kube-proxy adds only missing entries; with ``-exist``, adding all
    entries has the same result.
    """

    sets: tuple[FilledSet, ...]
    tool = ("ipset", "restore", "-exist")

    def text(self) -> Iterator[str]:
        """Yield the lines of all sets."""
        for item in self.sets:
            yield from item.text()
