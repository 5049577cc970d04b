"""Edits of knft's rule set that remove expected differences.

Each edit makes knft behave like kube-proxy's mode in one respect. If the behaviour depends on kube-proxy's flags, the
edit derives it from kube-proxy's rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from knft.interpret.compare.edit import (
    edit_chain,
    only_actions,
    with_collection,
    with_elements,
    with_tests,
    without_rules,
)
from knft.interpret.ranges import LOOPBACK, sole_value
from knft.interpret.rules import (
    DROP_INVALID,
    Action,
    AddressType,
    Collection,
    DnatMapLookup,
    Element,
    Field,
    HashedFields,
    InSet,
    RandomNumber,
    Rule,
    RuleSet,
    Step,
    Test,
    Translate,
    Verdict,
    Within,
)
from knft.protocols import PROTOCOL_NUMBERS

_FRONTEND = (Field.DESTINATION, Field.PROTOCOL, Field.DESTINATION_PORT)
_LOCAL = AddressType(Field.DESTINATION, frozenset({"local"}))
NODE_ENDPOINTS = "endpoints on the node"
"""The name of a collection that accompanies knft's rendered rules, because no rule says which endpoints are local."""

_EXTERNAL = "frontends that are no cluster IPs"

IPV4 = 4


def knft_name(rules: RuleSet, name: str) -> str:
    """Return the full name of a chain or a collection in knft's table."""
    return f"{'ip' if rules.version == IPV4 else 'ip6'} knft {name}"


def forward_invalid_packets(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rule that drops packets in conntrack state INVALID."""
    return without_rules(rules, knft_name(rules, "filter-forward"), lambda rule: rule.steps == DROP_INVALID)


def choose_endpoints_at_random(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Choose the endpoints of Services with consistent hashing at random, each with the same probability."""
    tables = [name for name in rules.collections if knft_name(rules, "hashed-endpoints-") in name]
    pools = {name: _pools_by_size(rules.collections[name]) for name in tables}
    for collection in [pool for by_size in pools.values() for pool in by_size.values()]:
        rules = with_collection(rules, collection)
    prefix = knft_name(rules, "")
    for chain in [name for name in rules.chains if tables and prefix in name]:
        rules = edit_chain(rules, chain, lambda rule: _random_rules(rule, pools))
    return rules


def _pools_by_size(tables: Collection) -> dict[int, Collection]:
    """Return the endpoints of tables as pools with indexes, by number of endpoints."""
    targets: dict[tuple[int | tuple[int, int], ...], dict[tuple[int, ...], None]] = {}
    for element in tables.elements:
        if isinstance(element.value, tuple):
            targets.setdefault(element.key[:-1], {})[element.value] = None
    pools: dict[int, list[Element]] = {}
    for key, found in targets.items():
        elements = pools.setdefault(len(found), [])
        elements += (Element((*key, index), target) for index, target in enumerate(found))
    return {size: Collection(f"{tables.name} of {size}", tuple(elements)) for size, elements in pools.items()}


def _random_rules(rule: Rule, pools: Mapping[str, Mapping[int, Collection]]) -> Iterator[Rule]:
    """Yield a rule that looks up a table of hashes as rules that look up pools; any other rule as it is."""
    lookup = rule.steps[-1] if rule.steps else None
    if not isinstance(lookup, DnatMapLookup) or not isinstance(lookup.key[-1], HashedFields):
        yield rule
        return
    for size, pool in pools.get(lookup.collection, {}).items():
        random = DnatMapLookup(pool.name, (*lookup.key[:-1], RandomNumber(size) if size > 1 else 0))
        yield replace(rule, steps=(*rule.steps[:-1], random))


def pass_undefined_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Accept packets to unused ports of a cluster IP, without the masquerade mark."""
    passing = edit_chain(
        rules,
        knft_name(rules, "cluster-ips-check"),
        lambda rule: (_return_instead(rule) if rule.comment == "undefined ports of cluster IPs" else rule,),
    )
    return _with_masquerade_test(passing, InSet(knft_name(rules, "service-ips"), _FRONTEND))


def _return_instead(rule: Rule) -> Rule:
    tests = tuple(step for step in rule.steps if not isinstance(step, Action))
    return replace(rule, steps=(*tests, Verdict("return")))


def _with_masquerade_test(rules: RuleSet, test: Test) -> RuleSet:
    """Add a test to the rules that mark packets to cluster IPs for masquerading."""
    return edit_chain(
        rules,
        knft_name(rules, "services"),
        lambda rule: (with_tests(rule, test) if rule.comment.startswith("masquerade") else rule,),
    )


def pass_unallocated_addresses(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Accept packets to unallocated cluster IPs."""
    return without_rules(
        rules, knft_name(rules, "cluster-ips-check"), lambda rule: rule.comment == "unallocated cluster IPs"
    )


def masquerade_by_cluster_ip_port(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Masquerade packets to cluster IPs only at ports of the cluster IP, not at ports where it is an external IP."""
    frontends = rules.collections.get(knft_name(rules, "service-ips"))
    if frontends is None:
        return rules
    external = tuple(Element(element.key) for element in frontends.elements if _is_external(element))
    known = with_collection(rules, Collection(knft_name(rules, _EXTERNAL), external))
    return _with_masquerade_test(known, InSet(knft_name(rules, _EXTERNAL), _FRONTEND, inverted=True))


def _is_external(element: Element) -> bool:
    """Return whether externalTrafficPolicy applies to a frontend, by the chain that it leads to."""
    return isinstance(element.value, Verdict) and "external" in element.value.chain


NodePortTests = Callable[[RuleSet, RuleSet], Iterable[tuple[Test, ...]]]


def node_ports_edit(chain: str, where: NodePortTests) -> Callable[[RuleSet, RuleSet], RuleSet]:
    """Return an edit that repeats a chain's NodePort rule for the addresses that pass the tests of ``where``."""

    def change(rules: RuleSet, kube_proxy: RuleSet) -> RuleSet:
        def edit(rule: Rule) -> Iterator[Rule]:
            yield rule
            if any("nodeport" in getattr(step, "collection", "") for step in only_actions(rule)):
                yield from (Rule((*tests, *only_actions(rule)), rule.text) for tests in where(rules, kube_proxy))

        return edit_chain(rules, knft_name(rules, chain), edit)

    return change


def _node_port_jump_tests(kube_proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    """Yield the tests of kube-proxy's rules that jump to the chain of NodePorts, in iptables mode."""
    chain = kube_proxy.chains.get("nat KUBE-SERVICES")
    for rule in chain.rules if chain is not None else ():
        if Verdict("jump", "nat KUBE-NODEPORTS") in rule.steps:
            yield tuple(step for step in rule.steps if not isinstance(step, Action))


def has_default_node_port_address(rules: RuleSet) -> bool:
    """Return whether NodePorts are at the default primary address: with --nodeport-addresses there can be several."""
    addresses = rules.collections.get(knft_name(rules, "nodeport-ips"))
    return addresses is not None and len(addresses.elements) <= 1


def _all_node_addresses(rules: RuleSet, kube_proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    if has_default_node_port_address(rules) and any(_LOCAL in tests for tests in _node_port_jump_tests(kube_proxy)):
        yield (_LOCAL, Within(Field.DESTINATION, LOOPBACK[rules.version], inverted=True))


def _loopback_addresses(rules: RuleSet, kube_proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    # kube-proxy's iptables mode does it for IPv4 alone.
    if rules.version == IPV4:
        yield from ((*tests, Within(Field.DESTINATION, LOOPBACK[IPV4])) for tests in _node_port_jump_tests(kube_proxy))


open_node_ports_on_all_addresses = node_ports_edit("services", _all_node_addresses)
open_node_ports_on_loopback = node_ports_edit("services", _loopback_addresses)
reject_node_ports_on_all_addresses = node_ports_edit("nodeport-endpoints-check", lambda _, __: ((_LOCAL,),))


def check_source_ranges_with_endpoints_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Apply loadBalancerSourceRanges only to frontends with endpoints."""
    served = InSet(knft_name(rules, "service-ips"), _FRONTEND)
    return edit_chain(rules, knft_name(rules, "firewall-check"), lambda rule: (with_tests(rule, served),))


def masquerade_every_hairpin(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Masquerade hairpin connections of all endpoints, not only of those on the node.

    The rules for endpoints that are known to be on the node stay unchanged.
    """
    known = rules.collections.get(NODE_ENDPOINTS)
    on_node = {element.key[0] for element in known.elements} if known is not None else set()
    others = (element for element in hairpin_connections(rules) if element.key[0] not in on_node)
    return with_elements(rules, knft_name(rules, "hairpin-connections"), others)


def hairpin_connections(rules: RuleSet) -> Iterator[Element]:
    """Yield set elements for the hairpin connections of all endpoints."""
    for address, protocol, port in _endpoints(rules):
        for number in (protocol,) if protocol is not None else PROTOCOL_NUMBERS.values():
            yield Element((address, address, number, port))


def _endpoints(rules: RuleSet) -> Iterator[tuple[int, int | None, int]]:
    """Yield address, protocol and port of every endpoint; the protocol is None if the rule does not name it."""
    for name, collection in rules.collections.items():
        if "endpoints" in name:
            protocol = PROTOCOL_NUMBERS.get(name.rpartition("-")[2])
            for element in collection.elements:
                match element.value:
                    case (int(address), int(port)):
                        yield address, protocol, port
    for chain in rules.chains.values():
        for rule in chain.rules:
            yield from (endpoint for step in rule.steps for endpoint in _dnat_endpoint(step))


def _dnat_endpoint(step: Step) -> Iterator[tuple[int, int | None, int]]:
    if isinstance(step, Translate) and step.kind == "dnat":
        address, port = sole_value(step.addresses), sole_value(step.ports)
        if address is not None and port is not None:
            yield address, None, port
