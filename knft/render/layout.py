"""The layout of the table (its sets, maps and hooks), and the constant chains and rules: those independent of Services.

Terms: ``containers`` are the declarations of sets and maps, ``declarations`` is a Table that contains nothing else, and
marker chains are empty chains: ``LAYOUT_MARKERS``, and one whose name contains a digest of the constant rules. See
docs/behaviour/nftables.md#base-chains and docs/behaviour/nftables.md#table. The tuple ``_HOOKS`` lists the base chains.

knft's nat chains run before those of kube-proxy (-100), and its masquerading before kube-proxy's
postrouting (100), so that knft's rules take effect first while leftovers of kube-proxy exist.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.nft import expressions as nft
from knft.nft.codec.cache_filter import CacheFilter
from knft.nft.objects import Chain, Container, Entry, Hook, Key, Table, Value
from knft.nft.transaction import Transaction
from knft.protocols import NFT_PROTOCOLS
from knft.render import names
from knft.render.affinity import MAX_CLIENTS, clients_set
from knft.render.counters import (
    count_connection,
    count_denied_source,
    count_nodeport_connection,
    counter_chains,
    counter_containers,
)
from knft.render.hashing import hashing_containers
from knft.render.localhost_nodeports import (
    LOOPBACK_NETWORKS,
    localhost_chains,
    localhost_containers,
    localhost_rules,
)
from knft.render.names import REJECT_CHAIN
from knft.render.pools import (
    AffinityPool,
    ExternalClusterChain,
    ExternalLocalChain,
    KnownClientsChain,
    PoolChain,
    PoolKind,
    SharedChain,
    hashes_clients,
    match_outside_source,
    shared_chain,
)
from knft.render.wide import wide_containers

HASHED_MAPS = frozenset(container.name for container in hashing_containers(Family.IPV4))
"""The names of the maps that exist only if a Service port has needed them for consistent hashing."""

BEFORE_NAT, NAT, FILTER, MASQUERADE = -111, -101, 0, 99
"""Hook priorities: filter before DNAT, DNAT, filter after DNAT, masquerade."""


def pool_kinds() -> tuple[PoolKind, ...]:
    """Return all kinds of pools."""
    return tuple(
        PoolKind(protocol, nodeport, local)
        for local in (False, True)
        for nodeport in (False, True)
        for protocol in NFT_PROTOCOLS.values()
    )


_WITHOUT_OPTIONS = Config("")


def containers(family: Family, config: Config = _WITHOUT_OPTIONS, *, hashing: bool = False) -> tuple[Container, ...]:
    """Return the declarations of all sets and maps of a family's table.

    Options of ``config`` need further ones, and so does consistent hashing: with ``hashing``, these are included.
    """
    address = "ipv4_addr" if family is Family.IPV4 else "ipv6_addr"
    frontend, nodeport = f"{address} . inet_proto . inet_service", "inet_proto . inet_service"
    hairpin = f"{address} . {frontend}"
    return (
        Container(names.CLUSTER_IPS, address, comment="cluster IPs of existing Services"),
        Container(names.SERVICE_CIDRS, address, interval=True, comment="Service CIDRs"),
        Container(names.NODEPORT_IPS, address, comment="addresses that accept NodePort traffic"),
        Container(names.HAIRPIN, hairpin, comment="connections of local endpoints to themselves"),
        Container(names.POD_CIDRS, address, interval=True, comment="pod CIDRs, unless the configuration fixes them"),
        Container(
            names.INSIDE_CIDRS,
            address,
            interval=True,
            comment="sources not masqueraded to cluster IPs, unless the configuration fixes them",
        ),
        Container(names.SOURCE_RESTRICTED_FRONTENDS, frontend, comment="load balancer VIPs with source ranges"),
        Container(
            names.SOURCE_RANGES,
            f"{frontend} . {address}",
            interval=True,
            comment="allowed sources of load balancer VIPs",
        ),
        *_earlier_containers(family),
        clients_set(family),
        Container(names.SERVICE_IPS, frontend, "verdict", comment="frontends with an address"),
        Container(names.SERVICE_NODEPORTS, nodeport, "verdict", comment="NodePorts"),
        Container(names.NO_ENDPOINT_SERVICES, frontend, "verdict", comment="frontends without endpoints"),
        Container(names.NO_ENDPOINT_NODEPORTS, nodeport, "verdict", comment="NodePorts without endpoints"),
        Container(
            names.SOURCE_RANGE_CHAINS, frontend, "verdict", comment="load balancer VIPs with chains of source ranges"
        ),
        *(declared for kind in pool_kinds() for declared in _endpoint_maps(kind, family.nft)),
        *wide_containers(family.nft),
        *(counter_containers(family) if config.service_counters else ()),
        *(localhost_containers() if config.localhost_nodeports else ()),
        *(hashing_containers(family) if hashing else ()),
    )


def _earlier_containers(family: Family) -> tuple[Container, ...]:
    """Return the sets and maps for session affinity of earlier versions (``knft.sync.earlier_affinity``).

    An earlier version replaces a table without them, which costs connections.
    """
    number, comment = "numgen random mod 65536", "for earlier versions of knft"
    endpoints = Container(
        names.EARLIER_STICKY_ENDPOINTS,
        f"{number} . {number}",
        f"{family.nft} daddr . tcp dport",
        by_expression=True,
        comment=comment,
    )
    affinity = f"{family.nft} saddr . {number} . {number}"
    return (
        Container(names.EARLIER_STICKY_PORTS, number, "verdict", by_expression=True, comment=comment),
        endpoints,
        Container(names.EARLIER_AFFINITY, affinity, by_expression=True, dynamic_size=MAX_CLIENTS, comment=comment),
    )


@cache
def container_names(family: Family, config: Config = _WITHOUT_OPTIONS) -> frozenset[str]:
    """Return the names of all sets and maps that the table may have."""
    return frozenset(container.name for container in containers(family, config, hashing=True))


@cache
def endpoint_map_names() -> frozenset[str]:
    """Return the names of the maps of endpoints and of endpoint IDs, which are the same in both families."""
    return frozenset(
        each.name for each in containers(Family.IPV4, hashing=True) if each.is_map and each.data != "verdict"
    )


def _endpoint_maps(kind: PoolKind, protocol: str) -> tuple[Container, Container]:
    # libnftables 1.0.6 allows a random number in a map's key only if the map is declared with "typeof".
    port = f"{kind.protocol} dport"
    frontend = port if kind.nodeport else f"{protocol} daddr . {port}"
    key, target = f"{frontend} . numgen random mod 65536", f"{protocol} daddr . {port}"
    return (
        Container(kind.map, key, target, by_expression=True),
        Container(kind.ids_map, key, "meta priority", by_expression=True),
    )


def constant_chains(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return the chains that do not depend on Services: regular chains, then base chains (those with a hook)."""
    return (
        Chain(REJECT_CHAIN, (nft.Rule((nft.Reject(),)),)),
        *(counter_chains(family) if config.service_counters else ()),
        *localhost_chains(family, config),
        Chain("firewall-check", _firewall_rules(family, config)),
        Chain("services", _services_rules(family, config)),
        Chain("service-endpoints-check", (_on_frontend(family, names.NO_ENDPOINT_SERVICES),)),
        Chain(
            "nodeport-endpoints-check",
            (_on_nodeport(family, config, names.NO_ENDPOINT_NODEPORTS), *localhost_rules(family, config)),
        ),
        Chain("cluster-ips-check", _cluster_ips_rules(family)),
        Chain("masquerading", _masquerading_rules(family, config)),
        *(
            Chain(
                name,
                (*_first_rules(name, config), *(nft.Rule((*when, nft.Jump(chain))) for when, chain in jumps)),
                hook,
            )
            for name, hook, jumps in _HOOKS
        ),
    )


def _first_rules(base_chain: str, config: Config) -> tuple[nft.Rule, ...]:
    """Return the rules of a base chain that precede its jumps."""
    if base_chain != names.FILTER_FORWARD or not config.drop_invalid_packets:
        return ()
    invalid = nft.Match(nft.Ct("state"), "invalid", "in")
    return (nft.Rule((invalid, nft.Count(), nft.Drop()), "packets that conntrack finds INVALID"),)


_ALWAYS: tuple[nft.Match, ...] = ()
_NEW_CONNECTIONS = (nft.Match(nft.Ct("state"), "new", "in"),)

_HOOKS: tuple[tuple[str, Hook, tuple[tuple[tuple[nft.Match, ...], str], ...]], ...] = (
    ("filter-prerouting-pre-dnat", Hook("filter", "prerouting", BEFORE_NAT), ((_NEW_CONNECTIONS, "firewall-check"),)),
    ("filter-output-pre-dnat", Hook("filter", "output", BEFORE_NAT), ((_NEW_CONNECTIONS, "firewall-check"),)),
    ("filter-input", Hook("filter", "input", FILTER),
     ((_NEW_CONNECTIONS, "nodeport-endpoints-check"), (_NEW_CONNECTIONS, "service-endpoints-check"))),
    (names.FILTER_FORWARD, Hook("filter", "forward", FILTER),
     ((_NEW_CONNECTIONS, "service-endpoints-check"), (_NEW_CONNECTIONS, "cluster-ips-check"))),
    ("filter-output", Hook("filter", "output", FILTER),
     ((_NEW_CONNECTIONS, "service-endpoints-check"), (_NEW_CONNECTIONS, "cluster-ips-check"))),
    ("nat-prerouting", Hook("nat", "prerouting", NAT), ((_ALWAYS, "services"),)),
    ("nat-output", Hook("nat", "output", NAT), ((_ALWAYS, "services"),)),
    ("nat-postrouting", Hook("nat", "postrouting", MASQUERADE), ((_ALWAYS, "masquerading"),)),
)  # fmt: skip


def _daddr(family: Family) -> nft.Payload:
    return nft.Payload(family.nft, "daddr")


_SERVICE_PORT = (nft.Meta("l4proto"), nft.Payload("th", "dport"))


def _on_frontend(family: Family, verdicts: str) -> nft.Rule:
    return nft.Rule((nft.VerdictMap(nft.Concat((_daddr(family), *_SERVICE_PORT)), verdicts),))


def _on_nodeport(family: Family, config: Config, verdicts: str) -> nft.Rule:
    lookup = nft.VerdictMap(nft.Concat(_SERVICE_PORT), verdicts)
    return nft.Rule((*_to_nodeport_addresses(family, config), lookup))


def _to_nodeport_addresses(family: Family, config: Config) -> tuple[nft.Match, ...]:
    """Return the conditions for packets to addresses that accept NodePort traffic."""
    if not config.nodeports_on_all_addresses(family):
        return (nft.Match(_daddr(family), nft.Reference(names.NODEPORT_IPS)),)
    local = nft.Match(nft.FibType("daddr"), "local")
    return (local, nft.Match(_daddr(family), nft.Network(LOOPBACK_NETWORKS[family]), "!="))


def _services_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    to_cluster_ip = nft.Match(_daddr(family), nft.Reference(names.CLUSTER_IPS))
    mark = nft.SetMark(config.masquerade_mark)
    if config.masquerade_all:
        masquerade = nft.Rule((to_cluster_ip, mark), "masquerade all cluster IP traffic")
    else:
        comment = "masquerade cluster IP traffic from outside the cluster"
        masquerade = nft.Rule((to_cluster_ip, match_outside_source(family, config), mark), comment)
    to_services = _on_frontend(family, names.SERVICE_IPS)
    to_nodeports = _on_nodeport(family, config, names.SERVICE_NODEPORTS)
    if not config.service_counters:
        return (masquerade, to_services, to_nodeports)
    # A nat chain sees each connection once, so these count connections, and not packets before the first reply.
    count_nodeport = count_nodeport_connection(_to_nodeport_addresses(family, config))
    return (masquerade, count_connection(family), to_services, count_nodeport, to_nodeports)


def _firewall_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    frontend = (_daddr(family), *_SERVICE_PORT)
    source = nft.Payload(family.nft, "saddr")
    # "ct protocol" is "meta l4proto" in network byte order, which a set with intervals needs. libnftables 1.0.6
    # converts the latter with an expression that kernel 6.12.117 refuses ("Operation not supported").
    range_key = (_daddr(family), nft.Ct("protocol"), nft.Payload("th", "dport"), source)
    source_restricted = nft.Match(nft.Concat(frontend), nft.Reference(names.SOURCE_RESTRICTED_FRONTENDS))
    not_allowed = nft.Match(nft.Concat(range_key), nft.Reference(names.SOURCE_RANGES), "!=")
    return (
        *count_denied_source((source_restricted, not_allowed), family, config),
        nft.Rule((source_restricted, not_allowed, nft.Drop()), "load balancer source ranges"),
        _on_frontend(family, names.SOURCE_RANGE_CHAINS),
    )


def _cluster_ips_rules(family: Family) -> tuple[nft.Rule, ...]:
    allocated = nft.Match(_daddr(family), nft.Reference(names.CLUSTER_IPS))
    unallocated = nft.Match(_daddr(family), nft.Reference(names.SERVICE_CIDRS))
    return (
        nft.Rule((allocated, nft.Reject()), "undefined ports of cluster IPs"),
        nft.Rule((unallocated, nft.Drop()), "unallocated cluster IPs"),
    )


def _masquerading_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    mask = config.masquerade_mark
    addresses = (nft.Payload(family.nft, "saddr"), _daddr(family))
    connection = nft.Concat((*addresses, *_SERVICE_PORT))
    hairpin = nft.Match(connection, nft.Reference(names.HAIRPIN))
    translated = nft.Match(nft.Ct("status"), "dnat", "in")
    return (
        # Clears the mark, so that a packet that passes postrouting twice is masqueraded once.
        nft.Rule((nft.MarkIsSet(mask), nft.FlipMark(mask), nft.Masquerade()), "asked for by mark"),
        nft.Rule((translated, hairpin, nft.Masquerade()), "an endpoint dials its own Service"),
    )


LAYOUT_MARKERS = {Family.IPV4: "layout-5351d979", Family.IPV6: "layout-b27bf3a2"}
"""Empty chains that tell old versions of knft that they can adopt the table, because it contains all that theirs does.

Old versions replace a table without this chain, which costs connections. This version compares the sets, maps and hooks
of the table with those that it needs. See docs/design/table-versions.md.
"""

RULES_MARKER = "rules-"


def cache_filter(family: Family, config: Config = _WITHOUT_OPTIONS) -> CacheFilter:
    """Return the filter for transactions that change elements; see ``knft.nft.codec.cache_filter``."""
    return CacheFilter(
        LAYOUT_MARKERS[family],
        {
            each.name: "map" if each.is_map else "set"
            for each in containers(family, config, hashing=True)
            if not each.interval and not each.dynamic_size
        },
    )


def is_marker(chain: str) -> bool:
    """Tell whether a chain has the name of a marker chain of any version of knft."""
    return chain.startswith(("layout-", RULES_MARKER))


@lru_cache(maxsize=1 << 3)
def markers(family: Family, config: Config) -> tuple[str, str]:
    """Return the names of two empty chains: one for old versions of knft, and one that identifies the rules.

    Comments of containers do not count.
    """
    chains = constant_chains(family, config)
    declared = tuple(structs.replace(container, comment="") for container in containers(family, config))
    shared = tuple(shared_chain(spec, family, config) for spec in _shared_chain_samples())
    return LAYOUT_MARKERS[family], f"{RULES_MARKER}{_digest((declared, chains, shared))}"


def _shared_chain_samples() -> Iterator[SharedChain]:
    """Yield one shared chain of each form: rules depend on the kind, and on whether the pool has several endpoints."""
    for kind in pool_kinds():
        for size in (1, 2):
            yield PoolChain(kind, size)
            yield AffinityPool(kind, size, 1)
            if not kind.local:
                yield ExternalClusterChain(PoolChain(kind, size))
        yield KnownClientsChain(kind, 1, 0)
        if kind.local:
            cluster = PoolChain(structs.replace(kind, local=False), 2)
            yield ExternalLocalChain(cluster, PoolChain(kind, 0))
            yield ExternalLocalChain(cluster, PoolChain(kind, 1))


def _digest(described: object) -> str:
    return hashlib.sha256(repr(described).encode()).hexdigest()[:8]


def constant_chains_with_markers(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return all chains that do not depend on Services, followed by the marker chains."""
    return (*constant_chains(family, config), *(Chain(name) for name in markers(family, config)))


def declarations(family: Family, config: Config = _WITHOUT_OPTIONS, *, hashing: bool = False) -> Table:
    """Return the table with only its sets and maps; knft sends them as nft text before it sends anything else."""
    return Table(family.nft, names.TABLE, names.COMMENT, containers(family, config, hashing=hashing), (), {})


def uses_hashing(transaction: Transaction) -> bool:
    """Tell whether a transaction needs the maps that only consistent hashing needs.

    Another program may have made a chain with the name of a shared one, whose rules knft then writes.
    """
    written = (*transaction.new_chains, *transaction.chains)
    return not HASHED_MAPS.isdisjoint(transaction.added) or any(hashes_clients(chain.name) for chain in written)


def whole_table(
    declarations: Table, first: Transaction, dynamic_elements: Mapping[str, Mapping[Key, Value]] = {}
) -> Table:
    """Return the table that the declarations and a first transaction create together."""
    elements = {name: dict(sorted(added.items())) for name, added in first.added.items()}
    return structs.replace(
        declarations, chains=(*first.new_chains, *first.chains), elements={**dynamic_elements, **elements}
    )


def without_unreachable_chains(table: Table) -> Table:
    """Return a table without unreachable chains, for display.

    Empty chains stay, since they are markers.
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
        to_follow.extend(target for target in chains[name].target_chains() if target not in kept)
    return structs.replace(table, chains=tuple(chain for chain in table.chains if chain.name in kept))
