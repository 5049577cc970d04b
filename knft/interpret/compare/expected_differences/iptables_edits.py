"""Changes of kube-proxy's rule sets that take intended differences out of them."""

from collections.abc import Iterator

from msgspec.structs import replace

from knft.interpret.compare.edit import edit_chain, without_rules
from knft.interpret.compare.services import FRONTEND_CHAINS, Frontend, claimed_frontend, frontend_owners
from knft.interpret.ranges import LOOPBACK, single
from knft.interpret.rules import Field, HasState, Marked, Rule, RuleSet, Translated, Verdict, Within
from knft.protocols import TCP

_KNOWN = HasState(frozenset(("related", "established")))
_TCP = single(TCP)
_LOCALNET = frozenset(
    (
        Within(Field.DESTINATION, LOOPBACK[4]),
        Within(Field.SOURCE, LOOPBACK[4], inverted=True),
        replace(_KNOWN, inverted=True),
        Translated("dnat", inverted=True),
        Verdict("drop"),
    )
)
"""The tests and the verdict of the rule that lets nobody else to loopback addresses."""
_KINDS = ("cluster IP", "loadbalancer IP", "external IP")
"""What comments of the iptables mode call frontends; of one Service's, knft has it be the first of these."""


def reject_node_packets_too(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Have external IPs that nobody answers looked up for packets of the node as well, and for nobody else's."""
    services, external = (Verdict("jump", f"filter KUBE-{name}") for name in ("SERVICES", "EXTERNAL-SERVICES"))

    def edit(rule: Rule) -> Iterator[Rule]:
        yield rule
        if services in rule.steps:
            steps = tuple(external if step == services else step for step in rule.steps)
            yield replace(rule, steps=steps)

    return edit_chain(rules, "filter OUTPUT", edit)


def remove_localnet_drop(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Let loopback addresses be dialled from others."""
    return without_rules(rules, "filter KUBE-FIREWALL", _blocks_localnet)


def _blocks_localnet(rule: Rule) -> bool:
    """Tell whether a rule is the kubelet's, or kube-proxy's that is the same."""
    return len(rule.steps) == len(_LOCALNET) and set(rule.steps) == _LOCALNET


def remove_invalid_drop(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Let packets pass that conntrack can place nowhere."""
    invalid = HasState(frozenset({"invalid"})), Verdict("drop")
    return without_rules(rules, "filter KUBE-FORWARD", lambda rule: rule.steps == invalid)


def remove_forward_accepts(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Leave forwarded packets to the host's own rules."""
    return without_rules(rules, "filter KUBE-FORWARD", _forwards)


def _forwards(rule: Rule) -> bool:
    """Tell whether a rule is one of both that let through what has the mark, and what belongs to a connection."""
    match rule.steps:
        case (Marked(inverted=False), Verdict("accept")):
            return True
        case (HasState() as test, Verdict("accept")):
            return test == _KNOWN
    return False


def remove_health_check_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Leave health checks to the host's own rules."""
    return without_rules(rules, "filter KUBE-NODEPORTS", _lets_health_checks_in)


def _lets_health_checks_in(rule: Rule) -> bool:
    if not rule.comment.endswith(" health check node port"):
        return False
    match rule.steps:
        case (
            Within(Field.PROTOCOL, protocols, False),
            Within(Field.DESTINATION_PORT, ((first, last),), False),
            Verdict("accept"),
        ):
            return protocols == _TCP and first == last
    return False


def remove_losing_claims(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Take out the rules for a frontend that are not its owner's, where its owner has some too."""
    claimed = _claims(rules)
    owned = frontend_owners(knft)
    kept: dict[Frontend, tuple[str, str]] = {}
    for frontend, found in claimed.items():
        mine = [kind for name, kind in found if name == owned.get(frontend)]
        if mine and len(found) > 1:
            kept[frontend] = owned[frontend], min(mine, key=_rank)

    def is_lost(rule: Rule) -> bool:
        found = claimed_frontend(rule)
        if found is None or found[0] not in kept:
            return False
        if found[0][0] is not None and not _says_what(rule):
            return False  # kube-proxy says of each address what it is to the Service: this is none of its rules
        name, kind = kept[found[0]]
        return found[1] != name or (_kind(rule) in _KINDS and _kind(rule) != kind)

    without = rules
    for chain in FRONTEND_CHAINS if kept else ():
        without = without_rules(without, chain, is_lost)
    return without


def _claims(rules: RuleSet) -> dict[Frontend, set[tuple[str, str]]]:
    """Return who claims each frontend, and as what."""
    found: dict[Frontend, set[tuple[str, str]]] = {}
    for chain in FRONTEND_CHAINS & rules.chains.keys():
        for rule in rules.chains[chain].rules:
            claimed = claimed_frontend(rule)
            if claimed is not None:
                frontend, name = claimed
                found.setdefault(frontend, set()).add((name, _kind(rule)))
    return found


def _says_what(rule: Rule) -> bool:
    return bool(_kind(rule)) or " has no " in rule.comment or " not accepted " in rule.comment


def _kind(rule: Rule) -> str:
    return next((kind for kind in _KINDS if rule.comment.endswith(f" {kind}")), "")


def _rank(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
