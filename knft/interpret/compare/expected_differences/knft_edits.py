"""Changes of knft's rule sets that take intended differences out of them.

Each makes knft do what kube-proxy's mode does, in this one respect. Where that depends on kube-proxy's flags, its rules
are asked, and only for what cannot be anything else than the difference that is meant.
"""

from collections.abc import Callable, Iterable, Iterator

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
    Action,
    AddressType,
    Collection,
    Element,
    Field,
    InSet,
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
"""A collection of addresses that goes with knft's rules where these are rendered: no rule tells where endpoints are."""

_EXTERNAL = "frontends that are no cluster IPs"

IPV4 = 4


def knft_name(rules: RuleSet, name: str) -> str:
    """Return the full name of a chain or a collection in knft's table."""
    return f"{'ip' if rules.version == IPV4 else 'ip6'} knft {name}"


def pass_undefined_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have packets to ports that a cluster IP does not have go their way, unmarked."""
    let_go = edit_chain(
        rules,
        knft_name(rules, "cluster-ips-check"),
        lambda rule: (_passing(rule) if rule.comment == "undefined ports of cluster IPs" else rule,),
    )
    return _masquerading(let_go, InSet(knft_name(rules, "service-ips"), _FRONTEND))


def _passing(rule: Rule) -> Rule:
    tests = tuple(step for step in rule.steps if not isinstance(step, Action))
    return replace(rule, steps=(*tests, Verdict("return")))


def _masquerading(rules: RuleSet, test: Test) -> RuleSet:
    """Have fewer packets to cluster IPs marked for masquerading."""
    return edit_chain(
        rules,
        knft_name(rules, "services"),
        lambda rule: (with_tests(rule, test) if rule.comment.startswith("masquerade") else rule,),
    )


def pass_unallocated_addresses(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have packets to cluster IPs that nobody has go their way."""
    return without_rules(
        rules, knft_name(rules, "cluster-ips-check"), lambda rule: rule.comment == "unallocated cluster IPs"
    )


def masquerade_by_cluster_ip_port(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have cluster IPs hide clients at their own ports alone, and not at those where they are external IPs."""
    frontends = rules.collections.get(knft_name(rules, "service-ips"))
    if frontends is None:
        return rules
    external = tuple(Element(element.key) for element in frontends.elements if _is_external(element))
    known = with_collection(rules, Collection(knft_name(rules, _EXTERNAL), external))
    return _masquerading(known, InSet(knft_name(rules, _EXTERNAL), _FRONTEND, inverted=True))


def _is_external(element: Element) -> bool:
    """Tell whether a frontend is under the external policy, by the chain that it leads to."""
    return isinstance(element.value, Verdict) and "external" in element.value.chain


NodePortTests = Callable[[RuleSet, RuleSet], Iterable[tuple[Test, ...]]]


def node_ports_edit(chain: str, where: NodePortTests) -> Callable[[RuleSet, RuleSet], RuleSet]:
    """Return what has a chain's rule about NodePorts apply to more addresses."""

    def change(rules: RuleSet, proxy: RuleSet) -> RuleSet:
        def edit(rule: Rule) -> Iterator[Rule]:
            yield rule
            if any("nodeport" in getattr(step, "collection", "") for step in only_actions(rule)):
                yield from (Rule((*tests, *only_actions(rule)), rule.text) for tests in where(rules, proxy))

        return edit_chain(rules, knft_name(rules, chain), edit)

    return change


def _led_to_node_ports(proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    """Yield what kube-proxy's rules test before NodePorts are looked up, in the iptables mode."""
    chain = proxy.chains.get("nat KUBE-SERVICES")
    for rule in chain.rules if chain is not None else ():
        if Verdict("jump", "nat KUBE-NODEPORTS") in rule.steps:
            yield tuple(step for step in rule.steps if not isinstance(step, Action))


def has_default_node_port_address(rules: RuleSet) -> bool:
    """Tell whether NodePorts are at knft's own choice of an address: several have been chosen by somebody."""
    addresses = rules.collections.get(knft_name(rules, "nodeport-ips"))
    return addresses is not None and len(addresses.elements) <= 1


def _everywhere(rules: RuleSet, proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    if has_default_node_port_address(rules) and any(_LOCAL in tests for tests in _led_to_node_ports(proxy)):
        yield (_LOCAL, Within(Field.DESTINATION, LOOPBACK[rules.version], inverted=True))


def _loopback(rules: RuleSet, proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    # kube-proxy's iptables mode does it for IPv4 alone.
    if rules.version == IPV4:
        yield from ((*tests, Within(Field.DESTINATION, LOOPBACK[IPV4])) for tests in _led_to_node_ports(proxy))


open_node_ports_on_all_addresses = node_ports_edit("services", _everywhere)
open_node_ports_on_loopback = node_ports_edit("services", _loopback)
reject_node_ports_on_all_addresses = node_ports_edit("nodeport-endpoints-check", lambda _, __: ((_LOCAL,),))


def check_source_ranges_with_endpoints_only(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have source ranges apply to frontends with endpoints alone."""
    served = InSet(knft_name(rules, "service-ips"), _FRONTEND)
    return edit_chain(rules, knft_name(rules, "firewall-check"), lambda rule: (with_tests(rule, served),))


def masquerade_every_hairpin(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have every endpoint masqueraded that dials itself, not only those on the node.

    Those of which it is known that they are on the node are left as the rules have them.
    """
    known = rules.collections.get(NODE_ENDPOINTS)
    here = {element.key[0] for element in known.elements} if known is not None else set()
    others = (element for element in hairpin_connections(rules) if element.key[0] not in here)
    return with_elements(rules, knft_name(rules, "hairpin-connections"), others)


def hairpin_connections(rules: RuleSet) -> Iterator[Element]:
    """Yield the connections of every endpoint with itself."""
    for address, protocol, port in _endpoints(rules):
        for number in (protocol,) if protocol is not None else PROTOCOL_NUMBERS.values():
            yield Element((address, address, number, port))


def _endpoints(rules: RuleSet) -> Iterator[tuple[int, int | None, int]]:
    """Yield address, protocol and port of every endpoint; the protocol is None where it is not said."""
    for name, collection in rules.collections.items():
        if "endpoints" in name:
            protocol = PROTOCOL_NUMBERS.get(name.rpartition("-")[2])
            for element in collection.elements:
                match element.value:
                    case (int(address), int(port)):
                        yield address, protocol, port
    for chain in rules.chains.values():
        for rule in chain.rules:
            yield from (end for step in rule.steps for end in _of_step(step))


def _of_step(step: Step) -> Iterator[tuple[int, int | None, int]]:
    if isinstance(step, Translate) and step.kind == "dnat":
        address, port = sole_value(step.addresses), sole_value(step.ports)
        if address is not None and port is not None:
            yield address, None, port
