"""The iptables rules around IPVS, in order, as input of ``iptables-restore`` (E.7).

Rules stand in sections; a vintage is a tuple of sections. Within one chain the order is kube-proxy's.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from knft.model.names import Family, Protocol
from knft_compat import rules
from knft_compat.cluster import LOOPBACK_NETWORKS, Cluster
from knft_compat.ipvs.chains import CHAINS
from knft_compat.ipvs.entries import Entries, Fenced
from knft_compat.ipvs.names import (
    BOUND_IPS,
    CLUSTER_IPS,
    EXTERNAL_IPS,
    FIREWALL,
    GUARDED_LOAD_BALANCERS,
    HAIRPINS,
    HEALTH_CHECK_NODE_PORTS,
    IPVS_FILTER,
    IPVS_OUT_FILTER,
    LOAD_BALANCER,
    LOAD_BALANCERS,
    LOCAL_EXTERNAL_IPS,
    LOCAL_LOAD_BALANCERS,
    LOCAL_NODE_PORTS,
    MARK_DROP,
    NODE_PORT,
    NODE_PORTS,
    SOURCE_CIDRS,
    SOURCE_IPS,
    SOURCE_RANGES_FIREWALL,
)
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.settings import Vintage
from knft_compat.ipvs.vintages import FEATURES
from knft_compat.names import MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import Restore, Rule, TableInput, comment

_MARKS_MASQUERADE = ("-j", MARK_MASQ)
_TABLES = ("nat", "filter")
"""kube-proxy restores nat first, unlike in its iptables mode."""


class Known(Struct, frozen=True):
    """What rules are written from. ``says_sets``: rules that look into a set bear its comment."""

    cluster: Cluster
    filled: frozenset[str]
    fenced: tuple[Fenced, ...]
    says_sets: bool

    def match(self, name: str, fields: str, *, said: bool = True) -> tuple[str, ...]:
        """Return arguments that look a packet's ``fields`` up in a set."""
        words = comment(SETS[name].comment) if said and self.says_sets else ()
        return (*words, *_match_set(name, self.cluster.family, fields))


Placed = tuple[str, Rule]
"""The table and the rule."""

Section = Callable[[Known], Iterator[Placed]]


class SetRule(Struct, frozen=True):
    """A rule that is there where its set has entries."""

    table: str
    chain: str
    name: str
    fields: str
    target: str
    protocol: str = ""


def _node_port_rules(protocol: Protocol, fields: str) -> tuple[SetRule, ...]:
    name = protocol.lower()
    return (
        SetRule("nat", NODE_PORT, LOCAL_NODE_PORTS[protocol], fields, "RETURN", name),
        SetRule("nat", NODE_PORT, NODE_PORTS[protocol], fields, MARK_MASQ, name),
    )


_SET_RULES = (
    SetRule("nat", POSTROUTING, HAIRPINS, "dst,dst,src", "MASQUERADE"),
    SetRule("nat", SERVICES, LOAD_BALANCERS, "dst,dst", LOAD_BALANCER),
    SetRule("nat", LOAD_BALANCER, LOCAL_LOAD_BALANCERS, "dst,dst", "RETURN"),
    *_node_port_rules("TCP", "dst"),
    *_node_port_rules("UDP", "dst"),
    *_node_port_rules("SCTP", "dst,dst"),
    SetRule("filter", PROXY_FIREWALL, GUARDED_LOAD_BALANCERS, "dst,dst", SOURCE_RANGES_FIREWALL),
    SetRule("filter", SOURCE_RANGES_FIREWALL, SOURCE_CIDRS, "dst,dst,src", "RETURN"),
    SetRule("filter", SOURCE_RANGES_FIREWALL, SOURCE_IPS, "dst,dst,src", "RETURN"),
)


def _old_node_port_rules(protocol: Protocol, fields: str) -> tuple[SetRule, ...]:
    return (
        SetRule("nat", SERVICES, NODE_PORTS[protocol], fields, NODE_PORT),
        SetRule("nat", NODE_PORT, LOCAL_NODE_PORTS[protocol], fields, "RETURN"),
    )


# As document 003 lists them, which is older than the code that it shows.
_SET_RULES_23 = (
    SetRule("nat", POSTROUTING, HAIRPINS, "dst,dst,src", "MASQUERADE"),
    SetRule("nat", SERVICES, LOAD_BALANCERS, "dst,dst", LOAD_BALANCER),
    SetRule("nat", LOAD_BALANCER, GUARDED_LOAD_BALANCERS, "dst,dst", FIREWALL),
    SetRule("nat", FIREWALL, SOURCE_CIDRS, "dst,dst,src", "RETURN"),
    SetRule("nat", FIREWALL, SOURCE_IPS, "dst,dst,src", "RETURN"),
    SetRule("nat", LOAD_BALANCER, LOCAL_LOAD_BALANCERS, "dst,dst", "RETURN"),
    *_old_node_port_rules("TCP", "dst"),
    *_old_node_port_rules("UDP", "dst"),
    *_old_node_port_rules("SCTP", "dst,dst"),
)


def restore(cluster: Cluster, wanted: Entries, vintage: Vintage) -> Restore:
    """Return both tables: their chains, emptied, and their rules."""
    filled = frozenset(name for name, members in wanted.sets.items() if members)
    known = Known(cluster, filled, wanted.fenced, FEATURES[vintage].says_sets)
    placed = [item for section in _SECTIONS[vintage] for item in section(known)]
    return Restore(
        cluster.family,
        tuple(
            TableInput(
                table,
                tuple(chain.name for chain in CHAINS[vintage] if chain.table == table),
                tuple(rule for where, rule in placed if where == table),
            )
            for table in _TABLES
        ),
    )


def _by_sets(rows: tuple[SetRule, ...]) -> Section:
    def section(known: Known) -> Iterator[Placed]:
        for row in rows:
            if row.name in known.filled:
                protocol = ("-p", row.protocol) if row.protocol else ()
                match = known.match(row.name, row.fields)
                yield row.table, Rule(row.chain, (*protocol, *match, "-j", row.target))

    return section


def _always(table: str, chain: str, *arguments: str) -> Section:
    def section(_known: Known) -> Iterator[Placed]:
        yield table, Rule(chain, arguments)

    return section


def _not_from_loopback(known: Known) -> Iterator[Placed]:
    yield "nat", Rule(SERVICES, ("-s", LOOPBACK_NETWORKS[known.cluster.family], "-j", "RETURN"))


def _cluster_ips(known: Known) -> Iterator[Placed]:
    """Yield who is masqueraded on the way to a cluster IP; where pods cannot be told, who dials from one."""
    if CLUSTER_IPS not in known.filled:
        return
    who = known.cluster.local_traffic
    if known.cluster.masquerade.everything:
        match = known.match(CLUSTER_IPS, "dst,dst")
    elif who is not None:
        match = (*known.match(CLUSTER_IPS, "dst,dst"), *who.is_not_local)
    else:
        match = known.match(CLUSTER_IPS, "src,dst")
    yield "nat", Rule(SERVICES, (*match, *_MARKS_MASQUERADE))


def _external_ips(known: Known) -> Iterator[Placed]:
    for name in (EXTERNAL_IPS, LOCAL_EXTERNAL_IPS):
        if name not in known.filled:
            continue
        match = known.match(name, "dst,dst")
        if name == EXTERNAL_IPS:
            yield "nat", Rule(SERVICES, (*match, *_MARKS_MASQUERADE))
        from_outside = ("-m", "physdev", "!", "--physdev-is-in", "-m", "addrtype", "!", "--src-type", "LOCAL")
        for more in (from_outside, ("-m", "addrtype", "--dst-type", "LOCAL")):
            yield "nat", Rule(SERVICES, (*match, *more, "-j", "ACCEPT"))


def _fences(known: Known) -> Iterator[Placed]:
    for item in known.fenced:
        where = ("--vaddr", item.address, "--vproto", item.protocol, "--vport", str(item.port))
        yield "filter", Rule(IPVS_OUT_FILTER, ("-s", item.address, "-m", "ipvs", *where, "-j", "DROP"))


def _accepted(known: Known) -> Iterator[Placed]:
    for name in (CLUSTER_IPS, LOAD_BALANCERS):
        if name in known.filled:
            match = known.match(name, "dst,dst", said=False)
            yield "nat", Rule(SERVICES, (*match, "-j", "ACCEPT"))


def _forwarded(known: Known) -> Iterator[Placed]:
    for rule in rules.forwarding(known.cluster.masquerade):
        yield "filter", rule


def _health_checks(known: Known) -> Iterator[Placed]:
    name = HEALTH_CHECK_NODE_PORTS
    words = comment(SETS[name].comment)
    yield "filter", Rule(NODE_PORT, (*words, *known.match(name, "dst", said=False), "-j", "ACCEPT"))


def _guards(*passing: tuple[str, str]) -> Section:
    """Yield what of a virtual server's address is no Service: the sets ``passing`` are, and the rest is rejected."""

    def section(known: Known) -> Iterator[Placed]:
        for name, fields in passing:
            match = known.match(name, fields, said=False)
            yield "filter", Rule(IPVS_FILTER, (*match, "-j", "RETURN"))
        new = ("-m", "conntrack", "--ctstate", "NEW", *known.match(BOUND_IPS, "dst", said=False))
        yield "filter", Rule(IPVS_FILTER, (*new, "-j", "REJECT"))

    return section


def _masquerading(known: Known) -> Iterator[Placed]:
    for rule in rules.masquerading(known.cluster.masquerade):
        yield "nat", rule


def _masquerading_by_mark(known: Known) -> Iterator[Placed]:
    how = known.cluster.masquerade
    match = (*rules.REQUIRES_SNAT, *rules.mark_match(how.mark_text))
    yield "nat", Rule(POSTROUTING, (*match, *rules.masquerade_target(how)))


def _marking(known: Known) -> Iterator[Placed]:
    yield "nat", rules.marking(known.cluster.masquerade)


def _match_set(name: str, family: Family, fields: str) -> tuple[str, ...]:
    return ("-m", "set", "--match-set", SETS[name].name_in(family), fields)


_TO_NODE_PORTS = _always("nat", SERVICES, "-m", "addrtype", "--dst-type", "LOCAL", "-j", NODE_PORT)
_LOAD_BALANCERS = _always("nat", LOAD_BALANCER, *_MARKS_MASQUERADE)
_OUT_OF_RANGE = _always("filter", SOURCE_RANGES_FIREWALL, "-j", "DROP")
_PASSING_26 = ((LOAD_BALANCERS, "dst,dst"), (CLUSTER_IPS, "dst,dst"), (EXTERNAL_IPS, "dst,dst"))
_PASSING = (*_PASSING_26, (LOCAL_EXTERNAL_IPS, "dst,dst"), (HEALTH_CHECK_NODE_PORTS, "dst"))
_SERVED: tuple[Section, ...] = (
    _by_sets(_SET_RULES),
    _cluster_ips,
    _external_ips,
    _TO_NODE_PORTS,
    _LOAD_BALANCERS,
    _OUT_OF_RANGE,
)
_NEWEST: tuple[Section, ...] = (
    _not_from_loopback,
    *_SERVED,
    _fences,
    _accepted,
    _forwarded,
    _health_checks,
    _guards(*_PASSING),
    _masquerading,
    _marking,
)
_SECTIONS: dict[Vintage, tuple[Section, ...]] = {
    Vintage.V1_23: (
        _masquerading_by_mark,
        _by_sets(_SET_RULES_23),
        _cluster_ips,
        _external_ips,
        _LOAD_BALANCERS,
        _always("nat", NODE_PORT, *_MARKS_MASQUERADE),
        _always("nat", FIREWALL, "-j", MARK_DROP),
        _accepted,
        _forwarded,
        _health_checks,
        _marking,
    ),
    Vintage.V1_26: (
        *_SERVED,
        _accepted,
        _forwarded,
        _health_checks,
        _guards(*_PASSING_26),
        _masquerading,
        _marking,
    ),
    Vintage.V1_29: _NEWEST,
    Vintage.NEWEST: _NEWEST,
}
