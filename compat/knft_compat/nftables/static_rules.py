"""The chains and rules that do not depend on Services: ``setupNFTables`` in kube-proxy's proxier.go."""

from collections.abc import Iterator
from typing import NamedTuple

from knft.families import Family
from knft_compat.nftables.expressions import (
    DROP,
    MARK,
    MASQUERADE,
    PORT,
    PROTOCOL,
    Expression,
    Object,
    concat,
    jump_to,
    match,
    network,
    networks,
    rule,
    set_mark,
    vmap,
)
from knft_compat.sync_input import LOOPBACK_NETWORKS, SyncInput


class BaseChain(NamedTuple):
    """A base chain."""

    name: str
    kind: str
    hook: str
    priority: int


BASE_CHAINS = (
    BaseChain("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    BaseChain("filter-output-pre-dnat", "filter", "output", -110),
    BaseChain("filter-input", "filter", "input", 0),
    BaseChain("filter-forward", "filter", "forward", 0),
    BaseChain("filter-output", "filter", "output", 0),
    BaseChain("nat-prerouting", "nat", "prerouting", -100),
    BaseChain("nat-output", "nat", "output", -100),
    BaseChain("nat-postrouting", "nat", "postrouting", 100),
)
_JUMPS_OF_NEW_CONNECTIONS = (
    ("filter-input", "nodeport-endpoints-check"),
    ("filter-input", "service-endpoints-check"),
    ("filter-forward", "service-endpoints-check"),
    ("filter-forward", "cluster-ips-check"),
    ("filter-output", "service-endpoints-check"),
    ("filter-output", "cluster-ips-check"),
    ("filter-prerouting-pre-dnat", "firewall-check"),
    ("filter-output-pre-dnat", "firewall-check"),
)
_JUMPS = (("nat-output", "services"), ("nat-prerouting", "services"), ("nat-postrouting", "masquerading"))
_NEW = match({"ct": {"key": "state"}}, "new", "in")


class Matches:
    """The matches and statements that depend on the family and on kube-proxy's settings."""

    def __init__(self, sync_input: SyncInput) -> None:
        """Make the matches of a sync."""
        self.nft_family = sync_input.family.nft
        self.set_mark = set_mark(sync_input.masquerade.mark)
        icmp = "icmp" if sync_input.family is Family.IPV4 else "icmpv6"
        self.reject: Expression = {"reject": {"type": icmp, "expr": "port-unreachable"}}
        self._local = sync_input.local_traffic_match
        self._loopback = LOOPBACK_NETWORKS[sync_input.family]
        self._all_addresses = not sync_input.node.nodeport_cidrs

    def address(self, field: str) -> Expression:
        """Return the source or destination address (``saddr``, ``daddr``) of a packet."""
        return {"payload": {"protocol": self.nft_family, "field": field}}

    def local_traffic(self, *, is_local: bool) -> Expression | None:
        """Return the match of packets from local pods, or from elsewhere; None if pods' traffic cannot be detected."""
        if self._local is None:
            return None
        flag, value = self._local.if_local
        operator = "==" if is_local else "!="
        if flag == "-i":
            return match({"meta": {"key": "iifname"}}, value.replace("+", "*"), operator)
        return match(self.address("saddr"), network(value), operator)

    def node_port_addresses(self, *, checks_fib: bool) -> Iterator[Expression]:
        """Yield the matches of addresses that accept NodePorts."""
        if not self._all_addresses:
            yield match(self.address("daddr"), "@nodeport-ips")
            return
        if checks_fib:
            yield match({"fib": {"result": "type", "flags": ["daddr"]}}, "local")
        yield match(self.address("daddr"), network(self._loopback), "!=")

    @property
    def frontend(self) -> Expression:
        """The key of maps of frontends with an address."""
        return concat(self.address("daddr"), PROTOCOL, PORT)


def base_rules(name: str) -> Iterator[Object]:
    """Yield the rules of a base chain."""
    for base, target in _JUMPS_OF_NEW_CONNECTIONS:
        if base == name:
            yield rule(_NEW, jump_to("jump", target))
    for base, target in _JUMPS:
        if base == name:
            yield rule(jump_to("jump", target))


def static_chains(sync_input: SyncInput, matches: Matches) -> dict[str, list[Object]]:
    """Return the rules of the other chains that do not depend on Services."""
    node_port = concat(PROTOCOL, PORT)
    return {
        "nodeport-endpoints-check": [
            rule(*matches.node_port_addresses(checks_fib=False), vmap(node_port, "no-endpoint-nodeports"))
        ],
        "service-endpoints-check": [rule(vmap(matches.frontend, "no-endpoint-services"))],
        "cluster-ips-check": list(_cluster_ips_check(sync_input, matches)),
        "firewall-check": [rule(vmap(matches.frontend, "firewall-ips"))],
        "services": [
            *_masquerading_of_cluster_ips(sync_input, matches),
            rule(vmap(matches.frontend, "service-ips")),
            rule(*matches.node_port_addresses(checks_fib=True), vmap(node_port, "service-nodeports")),
        ],
        "masquerading": list(_masquerading(sync_input, matches)),
        "reject-chain": [rule(matches.reject)],
    }


def _cluster_ips_check(sync_input: SyncInput, matches: Matches) -> Iterator[Object]:
    destination = matches.address("daddr")
    comment = "Reject traffic to invalid ports of ClusterIPs"
    yield rule(match(destination, "@cluster-ips"), matches.reject, comment=comment)
    if sync_input.service_cidrs:
        unallocated = match(destination, networks(sync_input.service_cidrs))
        yield rule(unallocated, DROP, comment="Drop traffic to unallocated ClusterIPs")


def _masquerading_of_cluster_ips(sync_input: SyncInput, matches: Matches) -> Iterator[Object]:
    is_cluster_ip = match(matches.address("daddr"), "@cluster-ips")
    from_elsewhere = matches.local_traffic(is_local=False)
    if sync_input.masquerade.masquerade_all:
        yield rule(is_cluster_ip, matches.set_mark, comment="masquerade all clusterIP traffic")
    elif from_elsewhere is not None:
        comment = "masquerade clusterIP traffic from outside cluster"
        yield rule(is_cluster_ip, from_elsewhere, matches.set_mark, comment=comment)


def _masquerading(sync_input: SyncInput, matches: Matches) -> Iterator[Object]:
    mark = sync_input.masquerade.mark
    unmark = {"mangle": {"key": MARK, "value": {"^": [MARK, mark]}}}
    yield rule(match({"&": [MARK, mark]}, 0, "!="), unmark, MASQUERADE)
    hairpin = concat(matches.address("saddr"), matches.address("daddr"), PROTOCOL, PORT)
    translated = match({"ct": {"key": "status"}}, "dnat", "in")
    yield rule(translated, match(hairpin, "@hairpin-connections"), MASQUERADE)
