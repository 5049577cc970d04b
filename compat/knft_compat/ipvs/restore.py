"""The iptables rules of the IPVS mode, as input of ``iptables-restore`` (docs/behaviour/ipvs.md#rules).

Each version is a tuple of sections, and each section yields rules. Within a chain the order is kube-proxy's.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from knft.families import Family
from knft.protocols import Protocol
from knft_compat import rules
from knft_compat.ipvs.chains import CHAINS
from knft_compat.ipvs.entries import DeniedFrontend, SetEntries
from knft_compat.ipvs.names import (
    BOUND_IPS,
    CLUSTER_IPS,
    EXTERNAL_IPS,
    FIREWALL,
    HAIRPINS,
    HEALTH_CHECK_NODE_PORTS,
    IPVS_FILTER,
    IPVS_OUT_FILTER,
    LOAD_BALANCER_CHAIN,
    LOAD_BALANCER_SET,
    LOCAL_EXTERNAL_IPS,
    LOCAL_LOAD_BALANCERS,
    LOCAL_NODE_PORT_SETS,
    MARK_DROP,
    NODE_PORT_CHAIN,
    NODE_PORT_SETS,
    SOURCE_CIDRS,
    SOURCE_IPS,
    SOURCE_RANGES_FIREWALL,
    SOURCE_RESTRICTED_LOAD_BALANCERS,
)
from knft_compat.ipvs.rule_versions import FEATURES
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.settings import RuleVersion
from knft_compat.names import MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import RestoreInput, Rule, TableInput, comment
from knft_compat.sync_input import LOOPBACK_NETWORKS, SyncInput

_MARK_FOR_MASQUERADE = ("-j", MARK_MASQ)
_TABLES = ("nat", "filter")
"""kube-proxy restores nat first, unlike in its iptables mode."""


class RenderContext(Struct, frozen=True):
    """The input of all sections; ``filled_sets`` are the names of sets that have entries."""

    sync_input: SyncInput
    filled_sets: frozenset[str]
    denied_frontends: tuple[DeniedFrontend, ...]
    comments_set_rules: bool

    def match_set(self, name: str, fields: str, *, with_comment: bool = True) -> tuple[str, ...]:
        """Return the arguments that match a packet's ``fields`` with a set."""
        label = comment(SETS[name].comment) if with_comment and self.comments_set_rules else ()
        return (*label, *_match_set_arguments(name, self.sync_input.family, fields))


TableRule = tuple[str, Rule]
"""The table and the rule."""

Section = Callable[[RenderContext], Iterator[TableRule]]


class SetRule(Struct, frozen=True):
    """A rule that exists if its set has entries."""

    table: str
    chain: str
    name: str
    fields: str
    target: str
    protocol: str = ""


def _node_port_rules(protocol: Protocol, fields: str) -> tuple[SetRule, ...]:
    name = protocol.lower()
    return (
        SetRule("nat", NODE_PORT_CHAIN, LOCAL_NODE_PORT_SETS[protocol], fields, "RETURN", name),
        SetRule("nat", NODE_PORT_CHAIN, NODE_PORT_SETS[protocol], fields, MARK_MASQ, name),
    )


_SET_RULES = (
    SetRule("nat", POSTROUTING, HAIRPINS, "dst,dst,src", "MASQUERADE"),
    SetRule("nat", SERVICES, LOAD_BALANCER_SET, "dst,dst", LOAD_BALANCER_CHAIN),
    SetRule("nat", LOAD_BALANCER_CHAIN, LOCAL_LOAD_BALANCERS, "dst,dst", "RETURN"),
    *_node_port_rules("TCP", "dst"),
    *_node_port_rules("UDP", "dst"),
    *_node_port_rules("SCTP", "dst,dst"),
    SetRule("filter", PROXY_FIREWALL, SOURCE_RESTRICTED_LOAD_BALANCERS, "dst,dst", SOURCE_RANGES_FIREWALL),
    SetRule("filter", SOURCE_RANGES_FIREWALL, SOURCE_CIDRS, "dst,dst,src", "RETURN"),
    SetRule("filter", SOURCE_RANGES_FIREWALL, SOURCE_IPS, "dst,dst,src", "RETURN"),
)


def _old_node_port_rules(protocol: Protocol, fields: str) -> tuple[SetRule, ...]:
    return (
        SetRule("nat", SERVICES, NODE_PORT_SETS[protocol], fields, NODE_PORT_CHAIN),
        SetRule("nat", NODE_PORT_CHAIN, LOCAL_NODE_PORT_SETS[protocol], fields, "RETURN"),
    )


# kube-proxy's published IPVS rules (003 in docs/verification.md#original-documents). They are older than the code in
# the same document.
_SET_RULES_23 = (
    SetRule("nat", POSTROUTING, HAIRPINS, "dst,dst,src", "MASQUERADE"),
    SetRule("nat", SERVICES, LOAD_BALANCER_SET, "dst,dst", LOAD_BALANCER_CHAIN),
    SetRule("nat", LOAD_BALANCER_CHAIN, SOURCE_RESTRICTED_LOAD_BALANCERS, "dst,dst", FIREWALL),
    SetRule("nat", FIREWALL, SOURCE_CIDRS, "dst,dst,src", "RETURN"),
    SetRule("nat", FIREWALL, SOURCE_IPS, "dst,dst,src", "RETURN"),
    SetRule("nat", LOAD_BALANCER_CHAIN, LOCAL_LOAD_BALANCERS, "dst,dst", "RETURN"),
    *_old_node_port_rules("TCP", "dst"),
    *_old_node_port_rules("UDP", "dst"),
    *_old_node_port_rules("SCTP", "dst,dst"),
)


def restore_input(sync_input: SyncInput, entries: SetEntries, version: RuleVersion) -> RestoreInput:
    """Return both tables with their chains, which are flushed, and their rules."""
    filled = frozenset(name for name, members in entries.sets.items() if members)
    context = RenderContext(sync_input, filled, entries.denied_frontends, FEATURES[version].comments_set_rules)
    table_rules = [item for section in _SECTIONS[version] for item in section(context)]
    return RestoreInput(
        sync_input.family,
        tuple(
            TableInput(
                table,
                tuple(chain.name for chain in CHAINS[version] if chain.table == table),
                tuple(rule for where, rule in table_rules if where == table),
            )
            for table in _TABLES
        ),
    )


def _set_rule_section(rows: tuple[SetRule, ...]) -> Section:
    def section(context: RenderContext) -> Iterator[TableRule]:
        for row in rows:
            if row.name in context.filled_sets:
                protocol = ("-p", row.protocol) if row.protocol else ()
                match = context.match_set(row.name, row.fields)
                yield row.table, Rule(row.chain, (*protocol, *match, "-j", row.target))

    return section


def _unconditional_rule(table: str, chain: str, *arguments: str) -> Section:
    def section(_context: RenderContext) -> Iterator[TableRule]:
        yield table, Rule(chain, arguments)

    return section


def _loopback_source_rule(context: RenderContext) -> Iterator[TableRule]:
    yield "nat", Rule(SERVICES, ("-s", LOOPBACK_NETWORKS[context.sync_input.family], "-j", "RETURN"))


def _cluster_ip_rules(context: RenderContext) -> Iterator[TableRule]:
    """Yield the masquerade rule of cluster IPs; if local traffic is unknown, match packets from a cluster IP."""
    if CLUSTER_IPS not in context.filled_sets:
        return
    local_traffic_match = context.sync_input.local_traffic_match
    if context.sync_input.masquerade.masquerade_all:
        match = context.match_set(CLUSTER_IPS, "dst,dst")
    elif local_traffic_match is not None:
        match = (*context.match_set(CLUSTER_IPS, "dst,dst"), *local_traffic_match.if_not_local)
    else:
        match = context.match_set(CLUSTER_IPS, "src,dst")
    yield "nat", Rule(SERVICES, (*match, *_MARK_FOR_MASQUERADE))


def _external_ip_rules(context: RenderContext) -> Iterator[TableRule]:
    for name in (EXTERNAL_IPS, LOCAL_EXTERNAL_IPS):
        if name not in context.filled_sets:
            continue
        match = context.match_set(name, "dst,dst")
        if name == EXTERNAL_IPS:
            yield "nat", Rule(SERVICES, (*match, *_MARK_FOR_MASQUERADE))
        from_outside = ("-m", "physdev", "!", "--physdev-is-in", "-m", "addrtype", "!", "--src-type", "LOCAL")
        for more in (from_outside, ("-m", "addrtype", "--dst-type", "LOCAL")):
            yield "nat", Rule(SERVICES, (*match, *more, "-j", "ACCEPT"))


def _denied_frontend_rules(context: RenderContext) -> Iterator[TableRule]:
    for item in context.denied_frontends:
        where = ("--vaddr", item.address, "--vproto", item.protocol, "--vport", str(item.port))
        yield "filter", Rule(IPVS_OUT_FILTER, ("-s", item.address, "-m", "ipvs", *where, "-j", "DROP"))


def _accept_rules(context: RenderContext) -> Iterator[TableRule]:
    for name in (CLUSTER_IPS, LOAD_BALANCER_SET):
        if name in context.filled_sets:
            match = context.match_set(name, "dst,dst", with_comment=False)
            yield "nat", Rule(SERVICES, (*match, "-j", "ACCEPT"))


def _forward_rules(context: RenderContext) -> Iterator[TableRule]:
    for rule in rules.forward_rules(context.sync_input.masquerade):
        yield "filter", rule


def _health_check_rule(context: RenderContext) -> Iterator[TableRule]:
    name = HEALTH_CHECK_NODE_PORTS
    label = comment(SETS[name].comment)
    yield "filter", Rule(NODE_PORT_CHAIN, (*label, *context.match_set(name, "dst", with_comment=False), "-j", "ACCEPT"))


def _ipvs_filter_section(*accepted_sets: tuple[str, str]) -> Section:
    """Yield rules that accept the sets ``accepted_sets`` and reject all other new connections to bound addresses."""

    def section(context: RenderContext) -> Iterator[TableRule]:
        for name, fields in accepted_sets:
            match = context.match_set(name, fields, with_comment=False)
            yield "filter", Rule(IPVS_FILTER, (*match, "-j", "RETURN"))
        new = ("-m", "conntrack", "--ctstate", "NEW", *context.match_set(BOUND_IPS, "dst", with_comment=False))
        yield "filter", Rule(IPVS_FILTER, (*new, "-j", "REJECT"))

    return section


def _masquerade_rules(context: RenderContext) -> Iterator[TableRule]:
    for rule in rules.masquerade_rules(context.sync_input.masquerade):
        yield "nat", rule


def _masquerade_marked_rule(context: RenderContext) -> Iterator[TableRule]:
    masquerade = context.sync_input.masquerade
    match = (*rules.REQUIRES_SNAT_COMMENT, *rules.mark_match(masquerade.mark_text))
    yield "nat", Rule(POSTROUTING, (*match, *rules.masquerade_target(masquerade)))


def _mark_rule(context: RenderContext) -> Iterator[TableRule]:
    yield "nat", rules.mark_rule(context.sync_input.masquerade)


def _match_set_arguments(name: str, family: Family, fields: str) -> tuple[str, ...]:
    return ("-m", "set", "--match-set", SETS[name].name_in(family), fields)


_NODE_PORT_JUMP = _unconditional_rule("nat", SERVICES, "-m", "addrtype", "--dst-type", "LOCAL", "-j", NODE_PORT_CHAIN)
_LOAD_BALANCER_MASQUERADE = _unconditional_rule("nat", LOAD_BALANCER_CHAIN, *_MARK_FOR_MASQUERADE)
_DROP_OUT_OF_SOURCE_RANGES = _unconditional_rule("filter", SOURCE_RANGES_FIREWALL, "-j", "DROP")
_ACCEPTED_SETS_26 = ((LOAD_BALANCER_SET, "dst,dst"), (CLUSTER_IPS, "dst,dst"), (EXTERNAL_IPS, "dst,dst"))
_ACCEPTED_SETS = (*_ACCEPTED_SETS_26, (LOCAL_EXTERNAL_IPS, "dst,dst"), (HEALTH_CHECK_NODE_PORTS, "dst"))
_SERVICE_SECTIONS: tuple[Section, ...] = (
    _set_rule_section(_SET_RULES),
    _cluster_ip_rules,
    _external_ip_rules,
    _NODE_PORT_JUMP,
    _LOAD_BALANCER_MASQUERADE,
    _DROP_OUT_OF_SOURCE_RANGES,
)
_NEWEST_SECTIONS: tuple[Section, ...] = (
    _loopback_source_rule,
    *_SERVICE_SECTIONS,
    _denied_frontend_rules,
    _accept_rules,
    _forward_rules,
    _health_check_rule,
    _ipvs_filter_section(*_ACCEPTED_SETS),
    _masquerade_rules,
    _mark_rule,
)
_SECTIONS: dict[RuleVersion, tuple[Section, ...]] = {
    RuleVersion.DOCUMENT_003: (
        _masquerade_marked_rule,
        _set_rule_section(_SET_RULES_23),
        _cluster_ip_rules,
        _external_ip_rules,
        _LOAD_BALANCER_MASQUERADE,
        _unconditional_rule("nat", NODE_PORT_CHAIN, *_MARK_FOR_MASQUERADE),
        _unconditional_rule("nat", FIREWALL, "-j", MARK_DROP),
        _accept_rules,
        _forward_rules,
        _health_check_rule,
        _mark_rule,
    ),
    RuleVersion.DOCUMENT_002: (
        *_SERVICE_SECTIONS,
        _accept_rules,
        _forward_rules,
        _health_check_rule,
        _ipvs_filter_section(*_ACCEPTED_SETS_26),
        _masquerade_rules,
        _mark_rule,
    ),
    RuleVersion.DOCUMENT_004: _NEWEST_SECTIONS,
    RuleVersion.NEWEST: _NEWEST_SECTIONS,
}
