"""The skeleton: containers, base chains and rules that no Service changes (C.3, C.4; DESIGN.md 1.1).

Rows of tables rather than branches: a new hook is a new line. nat runs before kube-proxy's (-100) and masquerading
before its postrouting (100), so that knft decides while another proxy's leftovers are there.
"""

import hashlib
from collections.abc import Iterator, Mapping

from msgspec import structs

from knft.config import Config
from knft.model.names import Family
from knft.nft import expressions as nft
from knft.nft.objects import Chain, Container, Entry, Hook, Key, Table, Value
from knft.nft.transaction import Transaction
from knft.render import names
from knft.render.names import NFT_FAMILIES, NFT_PROTOCOLS, REJECT_CHAIN
from knft.render.pools import ClusterPolicy, LocalPolicy, Pool, PoolKind, SharedChain, from_outside, pick, shared_chain
from knft.render.sticky import affinity_set

BEFORE_NAT, NAT, FILTER, MASQUERADE = -111, -101, 0, 99
"""Hook priorities: verdicts on what was dialled, rewriting destinations, verdicts after that, rewriting sources."""

_LOOPBACK = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}


def pool_kinds() -> tuple[PoolKind, ...]:
    """Return every kind of pool there is."""
    return tuple(
        PoolKind(protocol, nodeport, local)
        for local in (False, True)
        for nodeport in (False, True)
        for protocol in NFT_PROTOCOLS.values()
    )


def containers(family: Family) -> tuple[Container, ...]:
    """Return the declarations of every set and map of a family's table."""
    address = "ipv4_addr" if family is Family.IPV4 else "ipv6_addr"
    frontend, nodeport = f"{address} . inet_proto . inet_service", "inet_proto . inet_service"
    hairpin = f"{address} . {frontend}"
    return (
        Container(names.CLUSTER_IPS, address, comment="cluster IPs of live Services"),
        Container(names.SERVICE_CIDRS, address, interval=True, comment="where cluster IPs come from"),
        Container(names.NODEPORT_IPS, address, comment="addresses that accept NodePort traffic"),
        Container(names.HAIRPIN, hairpin, comment="local endpoints dialling themselves"),
        Container(names.POD_CIDRS, address, interval=True, comment="where this cluster's pods are, if it may change"),
        Container(
            names.INSIDE_CIDRS,
            address,
            interval=True,
            comment="who is not masqueraded to cluster IPs, if it may change",
        ),
        Container(names.GUARDED_FRONTENDS, frontend, comment="load balancer VIPs with source ranges"),
        Container(names.SOURCE_RANGES, f"{frontend} . {address}", interval=True, comment="who may dial those"),
        Container(
            names.STICKY_PORTS,
            "numgen random mod 65536",
            "verdict",
            by_expression=True,
            comment="Service ports with session affinity, by number",
        ),
        Container(
            names.STICKY_ENDPOINTS,
            "numgen random mod 65536 . numgen random mod 65536",
            f"{NFT_FAMILIES[family]} daddr . tcp dport",
            by_expression=True,
            comment="their endpoints, by index",
        ),
        affinity_set(family),
        Container(names.SERVICE_IPS, frontend, "verdict", comment="frontends with an address"),
        Container(names.SERVICE_NODEPORTS, nodeport, "verdict", comment="NodePorts"),
        Container(names.NO_ENDPOINT_SERVICES, frontend, "verdict", comment="frontends nobody answers"),
        Container(names.NO_ENDPOINT_NODEPORTS, nodeport, "verdict", comment="NodePorts nobody answers"),
        *(_endpoint_map(kind, NFT_FAMILIES[family]) for kind in pool_kinds()),
    )


def _endpoint_map(kind: PoolKind, protocol: str) -> Container:
    # A map's key can hold a random number only when it is declared by expression (libnftables 1.0.6).
    port = f"{kind.protocol} dport"
    frontend = port if kind.nodeport else f"{protocol} daddr . {port}"
    key, target = f"{frontend} . numgen random mod 65536", f"{protocol} daddr . {port}"
    return Container(kind.map, key, target, by_expression=True)


def base_chains(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return the chains that no Service changes, base chains last."""
    return (
        Chain(REJECT_CHAIN, (nft.Rule((nft.Reject(),)),)),
        Chain("firewall-check", _firewall_rules(family)),
        Chain("in-flight", tuple(_in_flight_rules(family))),
        Chain("services", _services_rules(family, config)),
        Chain("service-endpoints-check", (_on_frontend(family, names.NO_ENDPOINT_SERVICES),)),
        Chain("nodeport-endpoints-check", (_on_nodeport(family, config, names.NO_ENDPOINT_NODEPORTS),)),
        Chain("cluster-ips-check", _cluster_ips_rules(family)),
        Chain("masquerading", _masquerading_rules(family, config)),
        *(
            Chain(name, tuple(nft.Rule((*when, nft.Jump(chain))) for when, chain in jumps), hook)
            for name, hook, jumps in _HOOKS
        ),
    )


_ALWAYS: tuple[nft.Match, ...] = ()
_ON_NEW = (nft.Match(nft.Ct("state"), "new", "in"),)

_HOOKS: tuple[tuple[str, Hook, tuple[tuple[tuple[nft.Match, ...], str], ...]], ...] = (
    ("filter-prerouting-pre-dnat", Hook("filter", "prerouting", BEFORE_NAT), ((_ON_NEW, "firewall-check"),)),
    ("filter-output-pre-dnat", Hook("filter", "output", BEFORE_NAT), ((_ON_NEW, "firewall-check"),)),
    ("filter-input", Hook("filter", "input", FILTER),
     ((_ON_NEW, "nodeport-endpoints-check"), (_ON_NEW, "service-endpoints-check"))),
    ("filter-forward", Hook("filter", "forward", FILTER),
     ((_ON_NEW, "service-endpoints-check"), (_ON_NEW, "cluster-ips-check"))),
    ("filter-output", Hook("filter", "output", FILTER),
     ((_ON_NEW, "service-endpoints-check"), (_ON_NEW, "cluster-ips-check"))),
    ("nat-prerouting", Hook("nat", "prerouting", NAT), ((_ALWAYS, "services"),)),
    ("nat-output", Hook("nat", "output", NAT), ((_ALWAYS, "services"),)),
    ("nat-postrouting", Hook("nat", "postrouting", MASQUERADE), ((_ALWAYS, "masquerading"),)),
)  # fmt: skip


def _daddr(family: Family) -> nft.Payload:
    return nft.Payload(NFT_FAMILIES[family], "daddr")


_SERVICE_PORT = (nft.Meta("l4proto"), nft.Payload("th", "dport"))


def _on_frontend(family: Family, verdicts: str) -> nft.Rule:
    return nft.Rule((nft.VerdictMap(nft.Concat((_daddr(family), *_SERVICE_PORT)), verdicts),))


def _on_nodeport(family: Family, config: Config, verdicts: str) -> nft.Rule:
    lookup = nft.VerdictMap(nft.Concat(_SERVICE_PORT), verdicts)
    if not config.nodeports_everywhere(family):
        return nft.Rule((nft.Match(_daddr(family), nft.Reference(names.NODEPORT_IPS)), lookup))
    local = nft.Match(nft.FibType("daddr"), "local")
    not_loopback = nft.Match(_daddr(family), nft.Network(_LOOPBACK[family]), "!=")
    return nft.Rule((local, not_loopback, lookup))


def _services_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    to_cluster_ip = nft.Match(_daddr(family), nft.Reference(names.CLUSTER_IPS))
    mark = nft.SetMark(config.masquerade_mark)
    if config.masquerade_all:
        masquerade = nft.Rule((to_cluster_ip, mark), "masquerade all cluster IP traffic")
    else:
        comment = "masquerade cluster IP traffic from outside the cluster"
        masquerade = nft.Rule((to_cluster_ip, from_outside(family, config), mark), comment)
    return (
        masquerade,
        _on_frontend(family, names.SERVICE_IPS),
        _on_nodeport(family, config, names.SERVICE_NODEPORTS),
        nft.Rule((to_cluster_ip, nft.Jump("in-flight"))),
    )


def _in_flight_rules(family: Family) -> Iterator[nft.Rule]:
    """Yield what catches packets whose verdict led them to a chain that was new, and empty when they came.

    Verdicts of cluster IPs jump to the chains of sticky ports, so that such a packet comes back. The first endpoint is
    there as long as any; where a cluster IP has local endpoints, its policy is Local.
    """
    for kind in sorted(pool_kinds(), key=lambda kind: not kind.local):
        if not kind.nodeport:
            yield nft.Rule((pick(kind, 1, family),))


def _firewall_rules(family: Family) -> tuple[nft.Rule, ...]:
    frontend = (_daddr(family), *_SERVICE_PORT)
    source = nft.Payload(NFT_FAMILIES[family], "saddr")
    guarded = nft.Match(nft.Concat(frontend), nft.Reference(names.GUARDED_FRONTENDS))
    not_allowed = nft.Match(nft.Concat((*frontend, source)), nft.Reference(names.SOURCE_RANGES), "!=")
    return (nft.Rule((guarded, not_allowed, nft.Drop()), "load balancer source ranges"),)


def _cluster_ips_rules(family: Family) -> tuple[nft.Rule, ...]:
    live = nft.Match(_daddr(family), nft.Reference(names.CLUSTER_IPS))
    unallocated = nft.Match(_daddr(family), nft.Reference(names.SERVICE_CIDRS))
    return (
        nft.Rule((live, nft.Reject()), "undefined ports of cluster IPs"),
        nft.Rule((unallocated, nft.Drop()), "unallocated cluster IPs"),
    )


def _masquerading_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    mask = config.masquerade_mark
    ends = (nft.Payload(NFT_FAMILIES[family], "saddr"), _daddr(family))
    connection = nft.Concat((*ends, *_SERVICE_PORT))
    hairpin = nft.Match(connection, nft.Reference(names.HAIRPIN))
    translated = nft.Match(nft.Ct("status"), "dnat", "in")
    return (
        # The mark is taken off again, so that a packet that is routed twice is not masqueraded twice.
        nft.Rule((nft.MarkIsSet(mask), nft.FlipMark(mask), nft.Masquerade()), "asked for by mark"),
        nft.Rule((translated, hairpin, nft.Masquerade()), "an endpoint dials its own Service"),
    )


RULES_MARKER = "rules-"


def markers(family: Family, config: Config) -> tuple[str, str]:
    """Return the names of two empty chains that tell which layout and which rules a table was made with.

    A table with another layout (containers, hooks) has to be replaced; with other rules, they are written anew. What
    is only for people, comments of containers, counts for neither.
    """
    chains = base_chains(family, config)
    hooks = tuple((chain.name, chain.hook) for chain in chains)
    declared = tuple(structs.replace(container, comment="") for container in containers(family))
    shared = tuple(shared_chain(spec, family, config) for spec in _samples())
    return f"layout-{_digest((declared, hooks))}", f"{RULES_MARKER}{_digest((declared, chains, shared))}"


def _samples() -> Iterator[SharedChain]:
    """Yield a shared chain of every form that there is: their rules differ by kind, and by whether a pool is small."""
    for kind in pool_kinds():
        for size in (1, 2):
            yield Pool(kind, size)
            if not kind.local:
                yield ClusterPolicy(Pool(kind, size))
        if kind.local:
            cluster = Pool(structs.replace(kind, local=False), 2)
            yield LocalPolicy(cluster, Pool(kind, 0))
            yield LocalPolicy(cluster, Pool(kind, 1))


def _digest(described: object) -> str:
    return hashlib.sha256(repr(described).encode()).hexdigest()[:8]


def _bare_table(family: Family, chains: tuple[Chain, ...]) -> Table:
    return Table(NFT_FAMILIES[family], names.TABLE, names.COMMENT, containers(family), chains, {})


def skeleton(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return every chain that no Service changes, the markers included."""
    return (*base_chains(family, config), *(Chain(name) for name in markers(family, config)))


def declarations(family: Family) -> Table:
    """Return the table with its containers alone: what is declared as text before the first sync."""
    return _bare_table(family, ())


def whole_table(declared: Table, first: Transaction, memories: Mapping[str, Mapping[Key, Value]] = {}) -> Table:
    """Return the table that its declarations and a first transaction make together.

    ``memories`` are put into the dynamic sets.
    """
    elements = {name: dict(sorted(added.items())) for name, added in first.added.items()}
    return structs.replace(declared, chains=(*first.made, *first.chains), elements={**memories, **elements})


def reachable(table: Table) -> Table:
    """Return a table for people: without the chains that no packet can get to.

    Empty chains stay: they are the markers.
    """
    chains = {chain.name: chain for chain in table.chains}
    kept = {name for name, chain in chains.items() if chain.hook is not None or not chain.rules}
    to_follow = sorted(kept) + [
        value.verdict.chain
        for elements in table.elements.values()
        for value in elements.values()
        if isinstance(value, Entry) and isinstance(value.verdict, nft.Goto | nft.Jump)
    ]
    while to_follow:
        name = to_follow.pop()
        kept.add(name)
        to_follow.extend(target for target in chains[name].leads_to() if target not in kept)
    return structs.replace(table, chains=tuple(chain for chain in table.chains if chain.name in kept))
