"""Edits of kube-proxy's iptables rule set that remove expected differences."""

from collections.abc import Iterator

from msgspec.structs import replace

from knft.interpret.compare.edit import edit_chain, without_rules
from knft.interpret.compare.services import FRONTEND_CHAINS, FrontendKey, claimed_frontend, frontend_owners
from knft.interpret.ranges import LOOPBACK, single
from knft.interpret.rules import DROP_INVALID, Field, HasState, Marked, Rule, RuleSet, Translated, Verdict, Within
from knft.protocols import TCP

_EXISTING_CONNECTION = HasState(frozenset(("related", "established")))
_TCP = single(TCP)
_LOCALNET = frozenset(
    (
        Within(Field.DESTINATION, LOOPBACK[4]),
        Within(Field.SOURCE, LOOPBACK[4], inverted=True),
        replace(_EXISTING_CONNECTION, inverted=True),
        Translated("dnat", inverted=True),
        Verdict("drop"),
    )
)
"""The steps of the rule that drops packets from other addresses to loopback addresses."""
_KINDS = ("cluster IP", "loadbalancer IP", "external IP")
"""The kinds of frontends in kube-proxy's comments, by precedence: knft treats a frontend as the first kind it has."""


def reject_node_packets_too(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Let the node's own packets also traverse the chain that rejects external IPs without endpoints."""
    services, external = (Verdict("jump", f"filter KUBE-{name}") for name in ("SERVICES", "EXTERNAL-SERVICES"))

    def edit(rule: Rule) -> Iterator[Rule]:
        yield rule
        if services in rule.steps:
            steps = tuple(external if step == services else step for step in rule.steps)
            yield replace(rule, steps=steps)

    return edit_chain(rules, "filter OUTPUT", edit)


def remove_localnet_drop(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rule that drops packets from other addresses to loopback addresses."""
    return without_rules(rules, "filter KUBE-FIREWALL", _is_localnet_drop)


def _is_localnet_drop(rule: Rule) -> bool:
    """Return whether a rule is this drop rule, which the kubelet and kube-proxy install alike."""
    return len(rule.steps) == len(_LOCALNET) and set(rule.steps) == _LOCALNET


def remove_invalid_drop(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rule that drops packets in conntrack state INVALID."""
    return without_rules(rules, "filter KUBE-FORWARD", lambda rule: rule.steps == DROP_INVALID)


def remove_forward_accepts(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rules that accept forwarded Service traffic."""
    return without_rules(rules, "filter KUBE-FORWARD", _accepts_forwarded)


def _accepts_forwarded(rule: Rule) -> bool:
    """Return whether a rule accepts packets with the masquerade mark, or packets of existing connections."""
    match rule.steps:
        case (Marked(inverted=False), Verdict("accept")):
            return True
        case (HasState() as test, Verdict("accept")):
            return test == _EXISTING_CONNECTION
    return False


def remove_health_check_ports(rules: RuleSet, _: RuleSet) -> RuleSet:
    """Remove the rules that accept health checks."""
    return without_rules(rules, "filter KUBE-NODEPORTS", _accepts_health_checks)


def _accepts_health_checks(rule: Rule) -> bool:
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
    """Remove the rules for contested frontends that do not belong to the frontend's owner in knft."""
    owners = frontend_owners(knft)
    winners: dict[FrontendKey, tuple[str, str]] = {}
    for frontend, claims in _claims(rules).items():
        kinds = [kind for name, kind in claims if name == owners.get(frontend)]
        if kinds and len(claims) > 1:
            winners[frontend] = owners[frontend], min(kinds, key=_rank)

    def is_losing(rule: Rule) -> bool:
        claim = claimed_frontend(rule)
        if claim is None or claim[0] not in winners:
            return False
        frontend, name = claim
        if frontend[0] is not None and not _names_kind(rule):
            return False  # not a rule of kube-proxy, whose comments name the kind of each address
        owner, kind = winners[frontend]
        return name != owner or (_kind(rule) in _KINDS and _kind(rule) != kind)

    result = rules
    for chain in FRONTEND_CHAINS if winners else ():
        result = without_rules(result, chain, is_losing)
    return result


def _claims(rules: RuleSet) -> dict[FrontendKey, set[tuple[str, str]]]:
    """Return the Service ports that claim each frontend, each with the kind of its claim."""
    claims: dict[FrontendKey, set[tuple[str, str]]] = {}
    for chain in sorted(FRONTEND_CHAINS & rules.chains.keys()):
        for rule in rules.chains[chain].rules:
            claim = claimed_frontend(rule)
            if claim is not None:
                frontend, name = claim
                claims.setdefault(frontend, set()).add((name, _kind(rule)))
    return claims


def _names_kind(rule: Rule) -> bool:
    return bool(_kind(rule)) or " has no " in rule.comment or " not accepted " in rule.comment


def _kind(rule: Rule) -> str:
    return next((kind for kind in _KINDS if rule.comment.endswith(f" {kind}")), "")


def _rank(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
