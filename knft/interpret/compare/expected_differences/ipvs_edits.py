"""Changes that take out what kube-proxy's IPVS mode does otherwise (behaviour.md E.6, E.7).

Of kube-proxy's rule set where its rules say enough, of knft's where only knft's know whom else a frontend has.
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
"""Of an ipset; kube-proxy cuts its names of IPv6."""
_SHORT = "short-circuit"
"""What comments begin with of knft's rules for pods and the node under external policy Local."""

_PLACED = HasState(frozenset({"invalid"}), inverted=True)
"""Of packets that conntrack can place nowhere, nobody looks at frontends."""

_Frontend = tuple[int, int, int]

CONTESTED_FRONTENDS = "frontends that several Services claim"
"""The name of a collection that comes with knft's rule set, of what no rule says."""


def _set(rules: RuleSet, name: str) -> str:
    """Return the full name of one of kube-proxy's ipsets."""
    return f"ipset {f'KUBE-6-{name}'[:_LONGEST_NAME] if rules.version == 6 else f'KUBE-{name}'}"  # noqa: PLR2004 - IPv6


def _members(rules: RuleSet, name: str) -> tuple[Element, ...]:
    collection = rules.collections.get(_set(rules, name))
    return collection.elements if collection is not None else ()


def node_addresses(proxy: RuleSet) -> Ranges:
    """Return the node's addresses that have virtual servers of their own: those of NodePorts."""
    found = {server.address for server in proxy.servers if not contains(proxy.ipvs_addresses, server.address)}
    return ranges((address, address) for address in found)


def unbind_sources(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have the node's own packets keep their source, whichever address they dial."""

    def edit(rule: Rule) -> Iterator[Rule]:
        # What keeps the node from dialling knows it by that source.
        if any(isinstance(step, ViaVirtualServer) for step in rule.steps):
            others = (step for step in rule.steps if not _is_about_source(step))
            yield replace(rule, steps=(_FROM_NODE, *others))
        else:
            yield rule

    return replace(edit_chain(rules, "filter KUBE-IPVS-OUT-FILTER", edit), sends_from_ipvs_addresses=False)


def _is_about_source(step: Step) -> bool:
    return isinstance(step, Within) and step.field is Field.SOURCE


def reject_cluster_ip_ports_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have other ports refused of cluster IPs alone, and not of every address that is bound.

    What a virtual server serves is no other port: where it is refused, it stays so.
    """
    addresses = ranges((key[0], key[0]) for key in _frontends(_members(rules, "CLUSTER-IP")))
    of_cluster = Within(Field.DESTINATION, addresses)
    servers = tuple(Element((server.address, server.protocol, server.port)) for server in rules.servers)
    served = InSet("served by virtual servers", _FRONTEND)

    def edit(rule: Rule) -> tuple[Rule, ...]:
        if Verdict("reject") not in rule.steps:
            return (rule,)
        return with_tests(rule, of_cluster), with_tests(rule, served)

    return edit_chain(with_collection(rules, Collection(served.collection, servers)), "filter KUBE-IPVS-FILTER", edit)


def remove_health_check_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Leave health checks to the host's own rules, and have their ports refused like others of bound addresses."""
    about = _set(rules, "HEALTH-CHECK-NODE-PORT")
    chains = ("filter KUBE-NODE-PORT", "filter KUBE-IPVS-FILTER")
    return reduce(lambda found, chain: without_rules(found, chain, lambda rule: _looks_up(rule, about)), chains, rules)


def masquerade_virtual_servers_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have masqueraded what virtual servers send on alone."""
    servers = tuple(Element((server.address, server.protocol, server.port)) for server in rules.servers)
    served = InSet("virtual servers", _FRONTEND)
    marked = edit_chain(
        with_collection(rules, Collection(served.collection, servers)),
        "nat KUBE-NODE-PORT",
        lambda rule: (with_tests(rule, served) if Verdict("jump", "nat KUBE-MARK-MASQ") in rule.steps else rule,),
    )
    endpoints = tuple(Element(element.key[:3]) for element in _members(rules, "LOOP-BACK"))
    dialled = (Field.ORIGINAL_DESTINATION, Field.PROTOCOL, Field.ORIGINAL_PORT)
    known = with_collection(marked, Collection("endpoints of this node", endpoints))
    by_server = InSet("endpoints of this node", dialled, inverted=True)
    hairpins = _set(rules, "LOOP-BACK")
    return edit_chain(
        known,
        "nat KUBE-POSTROUTING",
        lambda rule: (with_tests(rule, by_server) if _looks_up(rule, hairpins) else rule,),
    )


def _looks_up(rule: Rule, collection: str) -> bool:
    return any(isinstance(step, InSet) and step.collection == collection for step in rule.steps)


def check_source_ranges_of_connections_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have source ranges apply to packets that conntrack can place."""
    return edit_chain(rules, "filter KUBE-PROXY-FIREWALL", lambda rule: (with_tests(rule, _PLACED),))


def drop_without_local_endpoints(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Have cluster IPs dropped whose policy is Local, and that have endpoints elsewhere alone.

    Only knft's verdict tells such a Service from one without a policy.
    """
    dropped = {
        key
        for element in _elements(knft, knft_name(knft, "no-endpoint-services"))
        if element.value == Verdict("drop")
        for key in _frontends((element,))
    }
    here = {element.key[:3] for element in _members(rules, "LOOP-BACK")}
    of_cluster = {key for key in _frontends(_members(rules, "CLUSTER-IP")) if key in dropped}
    elsewhere = {
        (server.address, server.protocol, server.port) for server in rules.servers if not _has_target(server, here)
    }
    return _dropping(rules, "frontends of policy Local with nobody here", of_cluster & elsewhere, _FIRST)


def _has_target(server: VirtualServer, endpoints: set[tuple[int | tuple[int, int], ...]]) -> bool:
    return any((address, server.protocol, port) in endpoints for address, port, _ in server.real_servers)


_FIRST = ("nat PREROUTING", "nat OUTPUT")
"""Where kube-proxy's rules see a packet before IPVS does."""


def _dropping(rules: RuleSet, name: str, frontends: Iterable[_Frontend], chains: Iterable[str]) -> RuleSet:
    """Have connections to some frontends dropped at the head of some chains."""
    elements = tuple(Element(key) for key in sorted(frontends))
    drop = Rule((_PLACED, InSet(name, _FRONTEND), Verdict("drop")), text=name)
    return reduce(
        lambda found, chain: with_chain(found, Chain(chain, (drop, *found.chains[chain].rules))),
        (chain for chain in chains if chain in rules.chains),
        with_collection(rules, Collection(name, elements)),
    )


_WEAKER = (
    ("CLUSTER-IP", ("LOAD-BALANCER", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL")),
    ("LOAD-BALANCER", ("EXTERNAL-IP", "EXTERNAL-IP-LOCAL")),
)
"""What a frontend is no longer for knft, if it is in a stronger set."""


def drop_contested_frontends(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Have frontends dropped that several Services claim: rules of IPVS do not tell whose they are.

    What one Service claims as more than one kind of frontend is of the strongest kind.
    """
    collections = dict(rules.collections)
    for stronger, others in _WEAKER:
        taken = {element.key for element in _members(rules, stronger)}
        for name in (_set(rules, other) for other in others):
            if name in collections:
                kept = tuple(element for element in collections[name].elements if element.key not in taken)
                collections[name] = replace(collections[name], elements=kept)
    return _dropping(replace(rules, collections=collections), CONTESTED_FRONTENDS, _contested(knft, rules), _FIRST)


def drop_contested_frontends_in_knft(rules: RuleSet, proxy: RuleSet) -> RuleSet:
    """Have the same dropped by knft."""
    chains = (knft_name(rules, "filter-prerouting-pre-dnat"), knft_name(rules, "filter-output-pre-dnat"))
    return _dropping(rules, knft_name(rules, CONTESTED_FRONTENDS), _contested(rules, proxy), chains)


def _contested(knft: RuleSet, proxy: RuleSet) -> Iterator[_Frontend]:
    for element in _elements(knft, CONTESTED_FRONTENDS):
        match element.key:
            case (int(address), int(protocol), int(port)):
                yield address, protocol, port
            case (int(protocol), int(port)):
                yield from (
                    (address, protocol, port)
                    for first, last in node_addresses(proxy)
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


def _external_local(edit: Callable[[Chain], tuple[Rule, ...]]) -> Callable[[RuleSet, RuleSet], RuleSet]:
    """Edit knft's chains of external policy Local: two rules that short-circuit, and one where somebody is here."""

    def change(rules: RuleSet, _: RuleSet) -> RuleSet:
        found = [chain for chain in rules.chains.values() if any(_is_short(rule) for rule in chain.rules)]
        return reduce(lambda known, chain: with_chain(known, Chain(chain.name, edit(chain))), found, rules)

    return change


def _is_short(rule: Rule) -> bool:
    return rule.comment.startswith(_SHORT)


def _from_here(chain: Chain) -> tuple[Rule, ...]:
    others = tuple(rule for rule in chain.rules if not _is_short(rule))
    if others:
        return others
    return tuple(
        replace(rule, steps=tuple(step for step in rule.steps if not isinstance(step, SetMark))) for rule in chain.rules
    )


def _to_others(chain: Chain) -> tuple[Rule, ...]:
    others = tuple(rule for rule in chain.rules if not _is_short(rule))
    if others:
        return chain.rules
    to_cluster = next(step for step in chain.rules[-1].steps if isinstance(step, Verdict))
    return (*chain.rules, Rule((to_cluster,), text="nobody here"))


use_external_local_for_node_and_pods = _external_local(_from_here)
"""Have the node and its pods go where everybody goes, unmasqueraded."""
fall_back_to_remote_endpoints = _external_local(_to_others)
"""Have everybody go to other nodes' endpoints where there are none here."""


def check_node_source_ranges_like_kube_proxy(rules: RuleSet, proxy: RuleSet) -> RuleSet:
    """Have the node kept from guarded frontends where kube-proxy's rule for its own packets keeps it from them."""
    answered = {(server.address, server.protocol, server.port) for server in proxy.servers if server.real_servers}
    chain = proxy.chains.get("filter KUBE-IPVS-OUT-FILTER")
    through = {
        (step.address, step.protocol, step.port)
        for rule in (chain.rules if chain is not None else ())
        for step in rule.steps
        if isinstance(step, ViaVirtualServer)
    }
    # Where nobody answers, the node is refused before that rule.
    fenced = through & answered
    guarded = set(_frontends(_elements(rules, knft_name(rules, "guarded-frontends"))))
    name, check = knft_name(rules, "guards against the node"), knft_name(rules, "firewall-check-of-node")
    elements = tuple(Element(key) for key in sorted(fenced & guarded))
    with_set = with_collection(rules, Collection(name, elements))
    known = with_chain(with_set, Chain(check, (Rule((InSet(name, _FRONTEND), Verdict("drop")), text=check),)))
    before, after = Verdict("jump", knft_name(rules, "firewall-check")), Verdict("jump", check)
    return edit_chain(
        known,
        knft_name(rules, "filter-output-pre-dnat"),
        lambda rule: (replace(rule, steps=tuple(after if step == before else step for step in rule.steps)),),
    )


def keep_affinity_by_frontend(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have each frontend remember its own clients."""

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


def _served_node_ports(rules: RuleSet, proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    if has_default_node_port_address(rules):
        yield (Within(Field.DESTINATION, node_addresses(proxy)),)


serve_node_ports_at_virtual_servers = node_ports_edit("services", _served_node_ports)
reject_node_ports_at_virtual_servers = node_ports_edit("nodeport-endpoints-check", _served_node_ports)


def open_node_ports_at_virtual_servers(rules: RuleSet, proxy: RuleSet) -> RuleSet:
    """Have NodePorts answered and refused at every address that has virtual servers."""
    return reject_node_ports_at_virtual_servers(serve_node_ports_at_virtual_servers(rules, proxy), proxy)
