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
from knft.interpret.ranges import LOOPBACK, only
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

_FRONTEND = (Field.DESTINATION, Field.PROTOCOL, Field.DESTINATION_PORT)
_LOCAL = AddressType(Field.DESTINATION, frozenset({"local"}))
ON_NODE = "endpoints on the node"
"""A collection of addresses that goes with knft's rules where these are rendered: no rule tells where endpoints are."""

_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_EXTERNAL = "frontends that are no cluster IPs"

IPV4 = 4


def own(rules: RuleSet, name: str) -> str:
    """Return the full name of a chain or a collection in knft's table."""
    return f"{'ip' if rules.version == IPV4 else 'ip6'} knft {name}"


def undefined_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have packets to ports that a cluster IP does not have go their way, unmarked."""
    let_go = edit_chain(
        rules,
        own(rules, "cluster-ips-check"),
        lambda rule: (_passing(rule) if rule.comment == "undefined ports of cluster IPs" else rule,),
    )
    return _masquerading(let_go, InSet(own(rules, "service-ips"), _FRONTEND))


def _passing(rule: Rule) -> Rule:
    tests = tuple(step for step in rule.steps if not isinstance(step, Action))
    return replace(rule, steps=(*tests, Verdict("return")))


def _masquerading(rules: RuleSet, test: Test) -> RuleSet:
    """Have fewer packets to cluster IPs marked for masquerading."""
    return edit_chain(
        rules,
        own(rules, "services"),
        lambda rule: (with_tests(rule, test) if rule.comment.startswith("masquerade") else rule,),
    )


def unallocated_addresses(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have packets to cluster IPs that nobody has go their way."""
    return without_rules(rules, own(rules, "cluster-ips-check"), lambda rule: rule.comment == "unallocated cluster IPs")


def masquerade_by_frontend(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have cluster IPs hide clients at their own ports alone, and not at those where they are external IPs."""
    frontends = rules.collections.get(own(rules, "service-ips"))
    if frontends is None:
        return rules
    external = tuple(Element(element.key) for element in frontends.elements if _is_external(element))
    known = with_collection(rules, Collection(own(rules, _EXTERNAL), external))
    return _masquerading(known, InSet(own(rules, _EXTERNAL), _FRONTEND, inverted=True))


def _is_external(element: Element) -> bool:
    """Tell whether a frontend is under the external policy, by the chain that it leads to."""
    return isinstance(element.value, Verdict) and "external" in element.value.chain


NodePortTests = Callable[[RuleSet, RuleSet], Iterable[tuple[Test, ...]]]


def node_ports(chain: str, where: NodePortTests) -> Callable[[RuleSet, RuleSet], RuleSet]:
    """Return what has a chain's rule about NodePorts apply to more addresses."""

    def change(rules: RuleSet, proxy: RuleSet) -> RuleSet:
        def edit(rule: Rule) -> Iterator[Rule]:
            yield rule
            if any("nodeport" in getattr(step, "collection", "") for step in only_actions(rule)):
                yield from (Rule((*tests, *only_actions(rule)), rule.text) for tests in where(rules, proxy))

        return edit_chain(rules, own(rules, chain), edit)

    return change


def _led_to_node_ports(proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    """Yield what kube-proxy's rules test before NodePorts are looked up, in the iptables mode."""
    chain = proxy.chains.get("nat KUBE-SERVICES")
    for rule in chain.rules if chain is not None else ():
        if Verdict("jump", "nat KUBE-NODEPORTS") in rule.steps:
            yield tuple(step for step in rule.steps if not isinstance(step, Action))


def is_primary(rules: RuleSet) -> bool:
    """Tell whether NodePorts are at knft's own choice of an address: several have been chosen by somebody."""
    addresses = rules.collections.get(own(rules, "nodeport-ips"))
    return addresses is not None and len(addresses.elements) <= 1


def _everywhere(rules: RuleSet, proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    if is_primary(rules) and any(_LOCAL in tests for tests in _led_to_node_ports(proxy)):
        yield (_LOCAL, Within(Field.DESTINATION, LOOPBACK[rules.version], inverted=True))


def _loopback(rules: RuleSet, proxy: RuleSet) -> Iterator[tuple[Test, ...]]:
    # kube-proxy's iptables mode does it for IPv4 alone.
    if rules.version == IPV4:
        yield from ((*tests, Within(Field.DESTINATION, LOOPBACK[IPV4])) for tests in _led_to_node_ports(proxy))


node_ports_everywhere = node_ports("services", _everywhere)
node_ports_on_loopback = node_ports("services", _loopback)
node_ports_refused_everywhere = node_ports("nodeport-endpoints-check", lambda _, __: ((_LOCAL,),))


def guards_of_endpoints(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have source ranges apply to frontends with endpoints alone."""
    served = InSet(own(rules, "service-ips"), _FRONTEND)
    return edit_chain(rules, own(rules, "firewall-check"), lambda rule: (with_tests(rule, served),))


def every_hairpin(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have every endpoint masqueraded that dials itself, not only those on the node.

    Those of which it is known that they are on the node are left as the rules have them.
    """
    known = rules.collections.get(ON_NODE)
    here = {element.key[0] for element in known.elements} if known is not None else set()
    others = (element for element in hairpins(rules) if element.key[0] not in here)
    return with_elements(rules, own(rules, "hairpin-connections"), others)


def hairpins(rules: RuleSet) -> Iterator[Element]:
    """Yield the connections of every endpoint with itself."""
    for address, protocol, port in _endpoints(rules):
        for number in (protocol,) if protocol is not None else _PROTOCOLS.values():
            yield Element((address, address, number, port))


def _endpoints(rules: RuleSet) -> Iterator[tuple[int, int | None, int]]:
    """Yield address, protocol and port of every endpoint; the protocol is None where it is not said."""
    for name, collection in rules.collections.items():
        if "endpoints" in name:
            protocol = _PROTOCOLS.get(name.rpartition("-")[2])
            for element in collection.elements:
                match element.value:
                    case (int(address), int(port)):
                        yield address, protocol, port
    for chain in rules.chains.values():
        for rule in chain.rules:
            yield from (end for step in rule.steps for end in _of_step(step))


def _of_step(step: Step) -> Iterator[tuple[int, int | None, int]]:
    if isinstance(step, Translate) and step.what == "dnat":
        address, port = only(step.addresses), only(step.ports)
        if address is not None and port is not None:
            yield address, None, port
