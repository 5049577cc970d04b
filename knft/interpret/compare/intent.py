"""The differences between kube-proxy's modes that are meant (behaviour.md C.11 and what D and E say of each mode).

Each is written down as a change of one of the two rule sets, knft's or kube-proxy's, after which both do the same. A
difference of outcomes is by intent if one of these changes takes it away, and only then; so none of them can cover up
anything else.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from knft.interpret.compare.comparison import Variant
from knft.interpret.compare.edit import edit_chain, only_actions, with_elements, with_tests, without_rules
from knft.interpret.ranges import LOOPBACK
from knft.interpret.rules import (
    AddressType,
    Element,
    Field,
    HasState,
    InSet,
    Rule,
    RuleSet,
    Test,
    Verdict,
    Within,
)
from knft.takeover.names import Mode

_FRONTEND = (Field.DESTINATION, Field.PROTOCOL, Field.DESTINATION_PORT)
_LOCAL = AddressType(Field.DESTINATION, frozenset({"local"}))
_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}


class Intent(Struct, frozen=True):
    """A difference that is meant: the modes that have it, what they do otherwise, and where behaviour.md says so.

    ``knft`` or ``kube_proxy`` is the change that takes it out of the rule set of that side.
    """

    reason: str
    modes: tuple[Mode, ...]
    what: str
    source: str
    knft: Callable[[RuleSet], RuleSet] | None = None
    kube_proxy: Callable[[RuleSet], RuleSet] | None = None


def variants(mode: Mode, kube_proxy: RuleSet, knft: RuleSet) -> Iterator[Variant]:
    """Yield the rule sets with each intended difference taken out, and with all of them."""
    both = kube_proxy, knft
    for intent in INTENTS:
        if mode in intent.modes:
            yield Variant(intent.reason, *_without(intent, kube_proxy, knft))
            both = _without(intent, *both)
    yield Variant(SEVERAL, *both)


SEVERAL = "several of these"


def _without(intent: Intent, kube_proxy: RuleSet, knft: RuleSet) -> tuple[RuleSet, RuleSet]:
    return (
        intent.kube_proxy(kube_proxy) if intent.kube_proxy is not None else kube_proxy,
        intent.knft(knft) if intent.knft is not None else knft,
    )


def _own(rules: RuleSet, name: str) -> str:
    """Return the full name of a chain or a collection in knft's table."""
    return f"{'ip' if rules.version == 4 else 'ip6'} knft {name}"  # noqa: PLR2004 - the IP version itself


def _without_comment(chain: str, comment: str) -> Callable[[RuleSet], RuleSet]:
    return lambda rules: without_rules(rules, _own(rules, chain), lambda rule: rule.comment == comment)


def _undefined_ports(rules: RuleSet) -> RuleSet:
    """Have packets to ports that a cluster IP does not have go their way, as if the address were anybody's."""
    marked = "masquerade"
    served = InSet(_own(rules, "service-ips"), _FRONTEND)
    let_go = _without_comment("cluster-ips-check", "undefined ports of cluster IPs")(rules)
    return edit_chain(
        let_go,
        _own(rules, "services"),
        lambda rule: (with_tests(rule, served) if rule.comment.startswith(marked) else rule,),
    )


def _node_ports(chain: str, tests: Callable[[RuleSet], Iterable[Test]]) -> Callable[[RuleSet], RuleSet]:
    """Change which addresses a chain's rule about NodePorts is for."""

    def change(rules: RuleSet) -> RuleSet:
        def edit(rule: Rule) -> Iterator[Rule]:
            if any("nodeport" in getattr(step, "collection", "") for step in only_actions(rule)):
                yield rule
                yield Rule((*tests(rules), *only_actions(rule)), rule.text)
            else:
                yield rule

        return edit_chain(rules, _own(rules, chain), edit)

    return change


def _local_but_loopback(rules: RuleSet) -> tuple[Test, ...]:
    return (_LOCAL, Within(Field.DESTINATION, LOOPBACK[rules.version], inverted=True))


def _loopback(rules: RuleSet) -> tuple[Test, ...]:
    # kube-proxy's iptables mode does it for IPv4 alone.
    return (Within(Field.DESTINATION, LOOPBACK[4] if rules.version == 4 else ()),)  # noqa: PLR2004


def _own_refusals(rules: RuleSet) -> RuleSet:
    """Have frontends without endpoints looked up, for packets of the node, at cluster IPs alone."""
    to_cluster_ips = InSet(_own(rules, "cluster-ips"), (Field.DESTINATION,))
    check = Verdict("jump", _own(rules, "service-endpoints-check"))
    return edit_chain(
        rules,
        _own(rules, "filter-output"),
        lambda rule: (with_tests(rule, to_cluster_ips) if check in rule.steps else rule,),
    )


def _guards_with_endpoints(rules: RuleSet) -> RuleSet:
    """Have source ranges apply to frontends with endpoints alone."""
    served = InSet(_own(rules, "service-ips"), _FRONTEND)
    return edit_chain(rules, _own(rules, "firewall-check"), lambda rule: (with_tests(rule, served),))


def _every_hairpin(rules: RuleSet) -> RuleSet:
    """Have every endpoint masqueraded that dials itself, not only those on the node."""
    return with_elements(rules, _own(rules, "hairpin-connections"), _hairpins(rules))


def _hairpins(rules: RuleSet) -> Iterator[Element]:
    for name, collection in rules.collections.items():
        if "endpoints" not in name:
            continue
        protocol = _PROTOCOLS.get(name.rpartition("-")[2])
        for element in collection.elements:
            if isinstance(element.value, tuple) and len(element.value) > 1:
                address, port = element.value
                for number in (protocol,) if protocol else _PROTOCOLS.values():
                    yield Element((address, address, number, port))


def _without_verdicts(chain: str, *, states: bool, kind: str) -> Callable[[RuleSet], RuleSet]:
    """Take rules with a verdict out of one of kube-proxy's chains: those about states of connections, or all others."""

    def is_meant(rule: Rule) -> bool:
        about_states = any(isinstance(step, HasState) for step in rule.steps)
        verdicts = {step.kind for step in rule.steps if isinstance(step, Verdict)}
        return kind in verdicts and (about_states or not states)

    return lambda rules: without_rules(rules, chain, is_meant)


_IPTABLES, _BOTH = (Mode.IPTABLES,), (Mode.IPTABLES, Mode.IPVS)

INTENTS = (
    Intent(
        "undefined port",
        _IPTABLES,
        "a port that a live cluster IP does not have is not refused: the packet goes its way",
        "C.4(10)",
        knft=_undefined_ports,
    ),
    Intent(
        "unallocated address",
        _BOTH,
        "cluster IPs that no Service has are not dropped",
        "C.4(11)",
        knft=_without_comment("cluster-ips-check", "unallocated cluster IPs"),
    ),
    Intent(
        "localhost",
        _IPTABLES,
        "NodePorts answer on loopback addresses of IPv4",
        "C.11, D.5",
        knft=_node_ports("services", _loopback),
    ),
    Intent(
        "every address",
        _BOTH,
        "without `--nodeport-addresses`, NodePorts answer on every address, not on the primary one",
        "C.11, I.5",
        knft=_node_ports("services", _local_but_loopback),
    ),
    Intent(
        "refused everywhere",
        _IPTABLES,
        "NodePorts that nobody answers are refused or dropped on every local address",
        "D.5(5)",
        knft=_node_ports("nodeport-endpoints-check", lambda _: (_LOCAL,)),
    ),
    Intent(
        "own refusal",
        _IPTABLES,
        "the node's own packets to external IPs that nobody answers are not refused",
        "D.3",
        knft=_own_refusals,
    ),
    Intent(
        "guard without endpoints",
        _IPTABLES,
        "source ranges guard nothing while the Service has no endpoints",
        "D.5",
        knft=_guards_with_endpoints,
    ),
    Intent(
        "remote hairpin",
        _BOTH,
        "a pod of another node that dials itself through this node is masqueraded",
        "C.10",
        knft=_every_hairpin,
    ),
    Intent(
        "invalid packets",
        _IPTABLES,
        "packets that conntrack can place nowhere are dropped when they are forwarded",
        "C.11",
        kube_proxy=_without_verdicts("filter KUBE-FORWARD", states=True, kind="drop"),
    ),
    Intent(
        "forwarding rules",
        _BOTH,
        "forwarded Service traffic is accepted where the host's own rules would drop it",
        "C.11",
        kube_proxy=_without_verdicts("filter KUBE-FORWARD", states=False, kind="accept"),
    ),
    Intent(
        "health check ports",
        _IPTABLES,
        "healthCheckNodePorts are accepted where the host's own rules would drop them",
        "C.11",
        kube_proxy=_without_verdicts("filter KUBE-NODEPORTS", states=False, kind="accept"),
    ),
)
"""What differs by intent, in the order in which it is looked for."""


def intents(mode: Mode) -> tuple[Intent, ...]:
    """Return the intended differences of a mode."""
    return tuple(intent for intent in INTENTS if mode in intent.modes)


def explained(reason: str) -> str:
    """Return what an intended difference is, in words."""
    return next((intent.what for intent in INTENTS if intent.reason == reason), reason)
