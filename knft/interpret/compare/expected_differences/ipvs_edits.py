"""Edits that remove the expected differences of kube-proxy's IPVS mode (docs/behaviour/ipvs.md#rules).

They change kube-proxy's rule set if its rules contain enough information, else knft's, which also knows the endpoints
that IPVS mode omits.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce

from msgspec.structs import replace

from knft.interpret.compare.edit import edit_chain, with_chain, with_collection, with_tests, without_rules
from knft.interpret.compare.expected_differences.knft_edits import (
    has_default_node_port_address,
    knft_name,
    node_ports_edit,
)
from knft.interpret.ranges import Ranges, contains, ranges
from knft.interpret.rules import (
    AddressType,
    AddToSet,
    Chain,
    Collection,
    Element,
    Field,
    HasState,
    InSet,
    Rule,
    RuleSet,
    SetMark,
    Step,
    Test,
    Verdict,
    ViaVirtualServer,
    VirtualServer,
    Within,
)

_FRONTEND = (Field.DESTINATION, Field.PROTOCOL, Field.DESTINATION_PORT)
_FROM_NODE = AddressType(Field.SOURCE, frozenset({"local"}))
_LONGEST_NAME = 31
"""The maximum length of an ipset's name; kube-proxy truncates its IPv6 names."""
_SHORT_CIRCUIT = "short-circuit"
"""The start of the comments "short-circuit local traffic" and "short-circuit pod traffic" of knft's rules, which apply
to the node and its pods under externalTrafficPolicy Local."""

_NOT_INVALID = HasState(frozenset({"invalid"}), inverted=True)
"""Limits rules to packets that are not in conntrack state INVALID: IPVS and knft ignore packets in that state."""

_Frontend = tuple[int, int, int]

CONTESTED_FRONTENDS = "frontends that several Services claim"
"""The name of a collection that accompanies knft's rule set, because its rules do not contain losing claims."""


def _ipset_name(rules: RuleSet, name: str) -> str:
    """Return the full name of one of kube-proxy's ipsets."""
    return f"ipset {f'KUBE-6-{name}'[:_LONGEST_NAME] if rules.version == 6 else f'KUBE-{name}'}"  # noqa: PLR2004 - IPv6


def _ipset_elements(rules: RuleSet, name: str) -> tuple[Element, ...]:
    collection = rules.collections.get(_ipset_name(rules, name))
    return collection.elements if collection is not None else ()


def node_port_server_addresses(kube_proxy: RuleSet) -> Ranges:
    """Return the node's addresses with virtual servers for NodePorts: those that are not on kube-ipvs0."""
    addresses = {
        server.address for server in kube_proxy.servers if not contains(kube_proxy.ipvs_addresses, server.address)
    }
    return ranges((address, address) for address in addresses)


def keep_sources_of_node_packets(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Let rules match the source of the node's own packets, for all destinations."""

    def edit(rule: Rule) -> Iterator[Rule]:
        # The rule that blocks the node matches that source.
        if any(isinstance(step, ViaVirtualServer) for step in rule.steps):
            others = (step for step in rule.steps if not _matches_source(step))
            yield replace(rule, steps=(_FROM_NODE, *others))
        else:
            yield rule

    return replace(edit_chain(rules, "filter KUBE-IPVS-OUT-FILTER", edit), sends_from_ipvs_addresses=False)


def _matches_source(step: Step) -> bool:
    return isinstance(step, Within) and step.field is Field.SOURCE


def reject_cluster_ip_ports_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Reject packets to other ports only at cluster IPs, not at all addresses of kube-ipvs0.

    Packets to ports of virtual servers that were rejected before are still rejected.
    """
    addresses = ranges((key[0], key[0]) for key in _frontends(_ipset_elements(rules, "CLUSTER-IP")))
    of_cluster = Within(Field.DESTINATION, addresses)
    servers = tuple(Element((server.address, server.protocol, server.port)) for server in rules.servers)
    served = InSet("served by virtual servers", _FRONTEND)

    def edit(rule: Rule) -> tuple[Rule, ...]:
        if Verdict("reject") not in rule.steps:
            return (rule,)
        return with_tests(rule, of_cluster), with_tests(rule, served)

    return edit_chain(with_collection(rules, Collection(served.collection, servers)), "filter KUBE-IPVS-FILTER", edit)


def remove_health_check_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rules that accept health checks; their ports are rejected like others at addresses of kube-ipvs0."""
    about = _ipset_name(rules, "HEALTH-CHECK-NODE-PORT")
    chains = ("filter KUBE-NODE-PORT", "filter KUBE-IPVS-FILTER")
    return reduce(
        lambda found, chain: without_rules(found, chain, lambda rule: _matches_set(rule, about)), chains, rules
    )


def masquerade_virtual_servers_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Masquerade only packets to virtual servers."""
    servers = tuple(Element((server.address, server.protocol, server.port)) for server in rules.servers)
    served = InSet("virtual servers", _FRONTEND)
    marked = edit_chain(
        with_collection(rules, Collection(served.collection, servers)),
        "nat KUBE-NODE-PORT",
        lambda rule: (with_tests(rule, served) if Verdict("jump", "nat KUBE-MARK-MASQ") in rule.steps else rule,),
    )
    endpoints = tuple(Element(element.key[:3]) for element in _ipset_elements(rules, "LOOP-BACK"))
    original = (Field.ORIGINAL_DESTINATION, Field.PROTOCOL, Field.ORIGINAL_PORT)
    known = with_collection(marked, Collection("endpoints of this node", endpoints))
    by_server = InSet("endpoints of this node", original, inverted=True)
    hairpins = _ipset_name(rules, "LOOP-BACK")
    return edit_chain(
        known,
        "nat KUBE-POSTROUTING",
        lambda rule: (with_tests(rule, by_server) if _matches_set(rule, hairpins) else rule,),
    )


def _matches_set(rule: Rule, collection: str) -> bool:
    return any(isinstance(step, InSet) and step.collection == collection for step in rule.steps)


def check_source_ranges_of_connections_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Apply loadBalancerSourceRanges only to packets that are not in conntrack state INVALID."""
    return edit_chain(rules, "filter KUBE-PROXY-FIREWALL", lambda rule: (with_tests(rule, _NOT_INVALID),))


_RESET_OR_DROP = "reset-or-drop"
"""The chain that drops new connections of Services with ``knft.dev/drain`` (docs/behaviour/draining.md#rules)."""


def drop_without_local_endpoints(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Drop packets to cluster IPs with internalTrafficPolicy Local and only remote endpoints.

    Only the verdict in knft's rules distinguishes such a Service from one without the policy.
    """
    drops = (Verdict("drop"), Verdict("goto", knft_name(knft, _RESET_OR_DROP)))
    dropped = {
        key
        for element in _elements(knft, knft_name(knft, "no-endpoint-services"))
        if element.value in drops
        for key in _frontends((element,))
    }
    local = {element.key[:3] for element in _ipset_elements(rules, "LOOP-BACK")}
    of_cluster = {key for key in _frontends(_ipset_elements(rules, "CLUSTER-IP")) if key in dropped}
    elsewhere = {
        (server.address, server.protocol, server.port)
        for server in rules.servers
        if not _has_real_server(server, local)
    }
    return _with_drops(rules, "frontends with policy Local and no local endpoint", of_cluster & elsewhere, _BEFORE_IPVS)


def _has_real_server(server: VirtualServer, endpoints: set[tuple[int | tuple[int, int], ...]]) -> bool:
    return any((address, server.protocol, port) in endpoints for address, port, _ in server.real_servers)


_BEFORE_IPVS = ("nat PREROUTING", "nat OUTPUT")
"""The chains that packets traverse before IPVS."""


def _with_drops(rules: RuleSet, name: str, frontends: Iterable[_Frontend], chains: Iterable[str]) -> RuleSet:
    """Drop connections to some frontends at the start of some chains."""
    elements = tuple(Element(key) for key in sorted(frontends))
    drop = Rule((_NOT_INVALID, InSet(name, _FRONTEND), Verdict("drop")), text=name)
    return reduce(
        lambda found, chain: with_chain(found, Chain(chain, (drop, *found.chains[chain].rules))),
        (chain for chain in chains if chain in rules.chains),
        with_collection(rules, Collection(name, elements)),
    )


_PRECEDENCE = (
    ("CLUSTER-IP", ("LOAD-BALANCER", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL")),
    ("LOAD-BALANCER", ("EXTERNAL-IP", "EXTERNAL-IP-LOCAL")),
)
"""The kinds of frontends (by ipset) that another kind takes precedence over in knft."""


def drop_contested_frontends(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Drop packets to contested frontends, because IPVS rules do not name the owner.

    A frontend that one Service claims as several kinds only keeps the kind with the highest precedence.
    """
    collections = dict(rules.collections)
    for stronger, others in _PRECEDENCE:
        taken = {element.key for element in _ipset_elements(rules, stronger)}
        for name in (_ipset_name(rules, other) for other in others):
            if name in collections:
                kept = tuple(element for element in collections[name].elements if element.key not in taken)
                collections[name] = replace(collections[name], elements=kept)
    return _with_drops(
        replace(rules, collections=collections), CONTESTED_FRONTENDS, _contested_frontends(knft, rules), _BEFORE_IPVS
    )


def drop_contested_frontends_in_knft(rules: RuleSet, kube_proxy: RuleSet) -> RuleSet:
    """Drop packets to contested frontends in knft's rules too."""
    chains = (knft_name(rules, "filter-prerouting-pre-dnat"), knft_name(rules, "filter-output-pre-dnat"))
    return _with_drops(rules, knft_name(rules, CONTESTED_FRONTENDS), _contested_frontends(rules, kube_proxy), chains)


def _contested_frontends(knft: RuleSet, kube_proxy: RuleSet) -> Iterator[_Frontend]:
    for element in _elements(knft, CONTESTED_FRONTENDS):
        match element.key:
            case (int(address), int(protocol), int(port)):
                yield address, protocol, port
            case (int(protocol), int(port)):
                yield from (
                    (address, protocol, port)
                    for first, last in node_port_server_addresses(kube_proxy)
                    for address in range(first, last + 1)
                )


def _elements(rules: RuleSet, name: str) -> tuple[Element, ...]:
    collection = rules.collections.get(name)
    return collection.elements if collection is not None else ()


def _frontends(elements: Iterable[Element]) -> Iterator[_Frontend]:
    for element in elements:
        match element.key:
            case (int(address), int(protocol), int(port)):
                yield address, protocol, port


def _edit_external_local(edit: Callable[[Chain], tuple[Rule, ...]]) -> Callable[[RuleSet, RuleSet], RuleSet]:
    """Return an edit of knft's chains for externalTrafficPolicy Local.

    Such a chain has two rules for the node and its pods (``_SHORT_CIRCUIT``), and one more if there are local
    endpoints.
    """

    def change(rules: RuleSet, _: RuleSet) -> RuleSet:
        found = [chain for chain in rules.chains.values() if any(_is_short_circuit(rule) for rule in chain.rules)]
        return reduce(lambda known, chain: with_chain(known, Chain(chain.name, edit(chain))), found, rules)

    return change


def _is_short_circuit(rule: Rule) -> bool:
    return rule.comment.startswith(_SHORT_CIRCUIT)


def _like_other_traffic(chain: Chain) -> tuple[Rule, ...]:
    others = tuple(rule for rule in chain.rules if not _is_short_circuit(rule))
    if others:
        return others
    return tuple(
        replace(rule, steps=tuple(step for step in rule.steps if not isinstance(step, SetMark))) for rule in chain.rules
    )


def _with_remote_endpoints(chain: Chain) -> tuple[Rule, ...]:
    others = tuple(rule for rule in chain.rules if not _is_short_circuit(rule))
    if others:
        return chain.rules
    to_cluster = next(step for step in chain.rules[-1].steps if isinstance(step, Verdict))
    return (*chain.rules, Rule((to_cluster,), text="no local endpoint"))


use_external_local_for_node_and_pods = _edit_external_local(_like_other_traffic)
"""Send packets of the node and its pods to the same endpoints as all others, without masquerading."""
fall_back_to_remote_endpoints = _edit_external_local(_with_remote_endpoints)
"""Send all packets to remote endpoints if there are no local ones."""


def check_node_source_ranges_like_kube_proxy(rules: RuleSet, kube_proxy: RuleSet) -> RuleSet:
    """Drop the node's packets to the source-restricted frontends to which kube-proxy's rules drop them, and no others.

    kube-proxy's rule for the node's packets is in chain KUBE-IPVS-OUT-FILTER.
    """
    served = {(server.address, server.protocol, server.port) for server in kube_proxy.servers if server.real_servers}
    chain = kube_proxy.chains.get("filter KUBE-IPVS-OUT-FILTER")
    through = {
        (step.address, step.protocol, step.port)
        for rule in (chain.rules if chain is not None else ())
        for step in rule.steps
        if isinstance(step, ViaVirtualServer)
    }
    # Without real servers, the node's packets are rejected before that rule.
    blocked = through & served
    restricted = set(_frontends(_elements(rules, knft_name(rules, "guarded-frontends"))))
    name, check = knft_name(rules, "source-restricted frontends"), knft_name(rules, "firewall-check-of-node")
    elements = tuple(Element(key) for key in sorted(blocked & restricted))
    with_set = with_collection(rules, Collection(name, elements))
    known = with_chain(with_set, Chain(check, (Rule((InSet(name, _FRONTEND), Verdict("drop")), text=check),)))
    before, after = Verdict("jump", knft_name(rules, "firewall-check")), Verdict("jump", check)
    return edit_chain(
        known,
        knft_name(rules, "filter-output-pre-dnat"),
        lambda rule: (replace(rule, steps=tuple(after if step == before else step for step in rule.steps)),),
    )


def keep_affinity_by_frontend(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Keep session affinity per frontend."""

    def by_frontend(step: Step) -> Step:
        if isinstance(step, InSet | AddToSet) and rules.collections[step.collection].is_dynamic:
            return replace(step, key=(*step.key, Field.DESTINATION, Field.DESTINATION_PORT))
        return step

    chains = {
        name: Chain(name, tuple(replace(rule, steps=tuple(map(by_frontend, rule.steps))) for rule in chain.rules))
        if name.startswith(knft_name(rules, ""))
        else chain
        for name, chain in rules.chains.items()
    }
    return replace(rules, chains=chains)


def _virtual_server_tests(rules: RuleSet, kube_proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    if has_default_node_port_address(rules):
        yield (Within(Field.DESTINATION, node_port_server_addresses(kube_proxy)),)


serve_node_ports_at_virtual_servers = node_ports_edit("services", _virtual_server_tests)
reject_node_ports_at_virtual_servers = node_ports_edit("nodeport-endpoints-check", _virtual_server_tests)


def open_node_ports_at_virtual_servers(rules: RuleSet, kube_proxy: RuleSet) -> RuleSet:
    """Serve and reject NodePorts at all addresses that have virtual servers for them."""
    return reject_node_ports_at_virtual_servers(serve_node_ports_at_virtual_servers(rules, kube_proxy), kube_proxy)
