"""The iptables rules around IPVS, in order, as input of ``iptables-restore`` (E.7).

Rules stand in sections; a vintage is a tuple of sections. Within one chain the order is kube-proxy's.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from knft.model.names import Family
from knft_compat.cluster import LOOPBACK_NETWORKS, Cluster
from knft_compat.ipvs.chains import CHAINS
from knft_compat.ipvs.entries import Entries, Fenced
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.settings import Vintage
from knft_compat.ipvs.vintages import FEATURES
from knft_compat.rules import Restore, Rule, TableInput, comment, mark_match

_MARKS_MASQUERADE = ("-j", "KUBE-MARK-MASQ")
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


def _node_port_rules(protocol: str, ending: str, fields: str) -> tuple[SetRule, ...]:
    chain, name = "KUBE-NODE-PORT", "KUBE-NODE-PORT"
    return (
        SetRule("nat", chain, f"{name}-LOCAL-{ending}", fields, "RETURN", protocol),
        SetRule("nat", chain, f"{name}-{ending}", fields, "KUBE-MARK-MASQ", protocol),
    )


_RANGES = "KUBE-SOURCE-RANGES-FIREWALL"
_SET_RULES = (
    SetRule("nat", "KUBE-POSTROUTING", "KUBE-LOOP-BACK", "dst,dst,src", "MASQUERADE"),
    SetRule("nat", "KUBE-SERVICES", "KUBE-LOAD-BALANCER", "dst,dst", "KUBE-LOAD-BALANCER"),
    SetRule("nat", "KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "RETURN"),
    *_node_port_rules("tcp", "TCP", "dst"),
    *_node_port_rules("udp", "UDP", "dst"),
    *_node_port_rules("sctp", "SCTP-HASH", "dst,dst"),
    SetRule("filter", "KUBE-PROXY-FIREWALL", "KUBE-LOAD-BALANCER-FW", "dst,dst", _RANGES),
    SetRule("filter", _RANGES, "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "RETURN"),
    SetRule("filter", _RANGES, "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "RETURN"),
)


def _old_node_port_rules(ending: str, fields: str) -> tuple[SetRule, ...]:
    name = f"KUBE-NODE-PORT-{ending}"
    local = f"KUBE-NODE-PORT-LOCAL-{ending}"
    return (
        SetRule("nat", "KUBE-SERVICES", name, fields, "KUBE-NODE-PORT"),
        SetRule("nat", "KUBE-NODE-PORT", local, fields, "RETURN"),
    )


# As document 003 lists them, which is older than the code that it shows.
_SET_RULES_23 = (
    SetRule("nat", "KUBE-POSTROUTING", "KUBE-LOOP-BACK", "dst,dst,src", "MASQUERADE"),
    SetRule("nat", "KUBE-SERVICES", "KUBE-LOAD-BALANCER", "dst,dst", "KUBE-LOAD-BALANCER"),
    SetRule("nat", "KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-FW", "dst,dst", "KUBE-FIREWALL"),
    SetRule("nat", "KUBE-FIREWALL", "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "RETURN"),
    SetRule("nat", "KUBE-FIREWALL", "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "RETURN"),
    SetRule("nat", "KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "RETURN"),
    *_old_node_port_rules("TCP", "dst"),
    *_old_node_port_rules("UDP", "dst"),
    *_old_node_port_rules("SCTP-HASH", "dst,dst"),
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
    yield "nat", Rule("KUBE-SERVICES", ("-s", LOOPBACK_NETWORKS[known.cluster.family], "-j", "RETURN"))


def _cluster_ips(known: Known) -> Iterator[Placed]:
    """Yield who is masqueraded on the way to a cluster IP; where pods cannot be told, who dials from one."""
    if "KUBE-CLUSTER-IP" not in known.filled:
        return
    who = known.cluster.local_traffic
    if known.cluster.masquerade.everything:
        match = known.match("KUBE-CLUSTER-IP", "dst,dst")
    elif who is not None:
        match = (*known.match("KUBE-CLUSTER-IP", "dst,dst"), *who.is_not_local)
    else:
        match = known.match("KUBE-CLUSTER-IP", "src,dst")
    yield "nat", Rule("KUBE-SERVICES", (*match, *_MARKS_MASQUERADE))


def _external_ips(known: Known) -> Iterator[Placed]:
    for name in ("KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL"):
        if name not in known.filled:
            continue
        match = known.match(name, "dst,dst")
        if name == "KUBE-EXTERNAL-IP":
            yield "nat", Rule("KUBE-SERVICES", (*match, *_MARKS_MASQUERADE))
        from_outside = ("-m", "physdev", "!", "--physdev-is-in", "-m", "addrtype", "!", "--src-type", "LOCAL")
        for more in (from_outside, ("-m", "addrtype", "--dst-type", "LOCAL")):
            yield "nat", Rule("KUBE-SERVICES", (*match, *more, "-j", "ACCEPT"))


def _fences(known: Known) -> Iterator[Placed]:
    for item in known.fenced:
        where = ("--vaddr", item.address, "--vproto", item.protocol, "--vport", str(item.port))
        yield "filter", Rule("KUBE-IPVS-OUT-FILTER", ("-s", item.address, "-m", "ipvs", *where, "-j", "DROP"))


def _accepted(known: Known) -> Iterator[Placed]:
    for name in ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER"):
        if name in known.filled:
            match = known.match(name, "dst,dst", said=False)
            yield "nat", Rule("KUBE-SERVICES", (*match, "-j", "ACCEPT"))


def _forwarded(known: Known) -> Iterator[Placed]:
    by_mark = (*comment("kubernetes forwarding rules"), *mark_match(known.cluster.masquerade.mark_text))
    yield "filter", Rule("KUBE-FORWARD", (*by_mark, "-j", "ACCEPT"))
    by_state = (*comment("kubernetes forwarding conntrack rule"), "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    yield "filter", Rule("KUBE-FORWARD", (*by_state, "-j", "ACCEPT"))


def _health_checks(known: Known) -> Iterator[Placed]:
    name = "KUBE-HEALTH-CHECK-NODE-PORT"
    words = comment(SETS[name].comment)
    yield "filter", Rule("KUBE-NODE-PORT", (*words, *known.match(name, "dst", said=False), "-j", "ACCEPT"))


def _guards(*passing: tuple[str, str]) -> Section:
    """Yield what of a virtual server's address is no Service: the sets ``passing`` are, and the rest is rejected."""

    def section(known: Known) -> Iterator[Placed]:
        for name, fields in passing:
            match = known.match(name, fields, said=False)
            yield "filter", Rule("KUBE-IPVS-FILTER", (*match, "-j", "RETURN"))
        new = ("-m", "conntrack", "--ctstate", "NEW", *known.match("KUBE-IPVS-IPS", "dst", said=False))
        yield "filter", Rule("KUBE-IPVS-FILTER", (*new, "-j", "REJECT"))

    return section


def _masquerade(known: Known) -> tuple[str, ...]:
    return ("-j", "MASQUERADE", *(("--random-fully",) if known.cluster.masquerade.random_fully else ()))


_REQUIRED = comment("kubernetes service traffic requiring SNAT")


def _masquerading(known: Known) -> Iterator[Placed]:
    mark = known.cluster.masquerade.mark_text
    yield "nat", Rule("KUBE-POSTROUTING", ("-m", "mark", "!", "--mark", f"{mark}/{mark}", "-j", "RETURN"))
    yield "nat", Rule("KUBE-POSTROUTING", ("-j", "MARK", "--xor-mark", mark))
    yield "nat", Rule("KUBE-POSTROUTING", (*_REQUIRED, *_masquerade(known)))


def _masquerading_by_mark(known: Known) -> Iterator[Placed]:
    match = mark_match(known.cluster.masquerade.mark_text)
    yield "nat", Rule("KUBE-POSTROUTING", (*_REQUIRED, *match, *_masquerade(known)))


def _marking(known: Known) -> Iterator[Placed]:
    yield "nat", Rule("KUBE-MARK-MASQ", ("-j", "MARK", "--or-mark", known.cluster.masquerade.mark_text))


def _match_set(name: str, family: Family, fields: str) -> tuple[str, ...]:
    return ("-m", "set", "--match-set", SETS[name].name_in(family), fields)


_TO_NODE_PORTS = _always("nat", "KUBE-SERVICES", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "KUBE-NODE-PORT")
_LOAD_BALANCERS = _always("nat", "KUBE-LOAD-BALANCER", *_MARKS_MASQUERADE)
_OUT_OF_RANGE = _always("filter", _RANGES, "-j", "DROP")
_PASSING_26 = (("KUBE-LOAD-BALANCER", "dst,dst"), ("KUBE-CLUSTER-IP", "dst,dst"), ("KUBE-EXTERNAL-IP", "dst,dst"))
_PASSING = (*_PASSING_26, ("KUBE-EXTERNAL-IP-LOCAL", "dst,dst"), ("KUBE-HEALTH-CHECK-NODE-PORT", "dst"))
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
        _always("nat", "KUBE-NODE-PORT", *_MARKS_MASQUERADE),
        _always("nat", "KUBE-FIREWALL", "-j", "KUBE-MARK-DROP"),
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
