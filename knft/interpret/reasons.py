"""Explains why knft's or kube-proxy's rules reject, drop or masquerade a packet.

The functions take the trail of a packet and return a reason, or "" if they know none. They recognise rules by their
chains, their matches and their comments.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from knft.interpret.outcomes import Outcome, RuleHit
from knft.interpret.ranges import contains, sole_value
from knft.interpret.rules import (
    AddressType,
    Field,
    InSet,
    Interface,
    RuleSet,
    SetMark,
    Step,
    Translate,
    Unknown,
    Verdict,
    Within,
)
from knft.interpret.walk.servers import IPVS_CHAIN
from knft.leftovers.names import ipv6_set

_CLUSTER_IPS = frozenset({"cluster-ips", "KUBE-CLUSTER-IP", ipv6_set("KUBE-CLUSTER-IP")})
"""Sets of cluster IPs: nft sets of knft and of kube-proxy's nftables mode, and ipsets of kube-proxy."""
_NO_LOCAL = "no local endpoints, {policy} Local"
_NOT_ALLOWED = "the source is not in loadBalancerSourceRanges"


class _BlockingRule(NamedTuple):
    """Patterns for the chain and for the comment (or text) of rules that reject or drop, and their reason."""

    chain: str
    text: str
    reason: str


_BLOCKING_RULES = (
    _BlockingRule(r"cluster-ips-check", r"undefined ports|invalid ports", "the cluster IP has no such port"),
    _BlockingRule(r"cluster-ips-check", r"unallocated", "no Service has this cluster IP"),
    _BlockingRule(r"firewall-\S+|KUBE-FW-\S+|KUBE-PROXY-FIREWALL|KUBE-SOURCE-RANGES-FIREWALL", "", _NOT_ALLOWED),
    _BlockingRule(r"KUBE-\S+", r"has no local endpoints", _NO_LOCAL),
    _BlockingRule(r"KUBE-\S+", r"has no endpoints", "no endpoints"),
    _BlockingRule(r"KUBE-XLB-\S+|KUBE-SVL-\S+", r"no local endpoints", _NO_LOCAL),
    _BlockingRule(r"KUBE-IPVS-OUT-FILTER", "", "the node is not in loadBalancerSourceRanges"),
    _BlockingRule(r"KUBE-IPVS-FILTER", "", "the address is on kube-ipvs0, and no virtual server has this port"),
    # The kubelet's mark, which IPVS rules of old kube-proxies set for clients outside the source ranges.
    _BlockingRule(r"KUBE-FIREWALL", r"marked packets", _NOT_ALLOWED),
    _BlockingRule(r"KUBE-FIREWALL", "", "the kubelet blocks packets to loopback addresses from other addresses"),
    _BlockingRule(r"KUBE-FORWARD|filter-forward", r"INVALID", "the packet's conntrack state is invalid"),
    _BlockingRule(IPVS_CHAIN, "", "no endpoints, or none on this node where the traffic policy is Local"),
    _BlockingRule(r".*", r"^policy drop$", "no rule of the chain accepts the packet, and its policy is drop"),
)
"""The first matching entry gives the reason."""

_TO_ENDPOINTS = re.compile(r"(service|nodeport)-endpoints-check")
_MARKING = re.compile(r"KUBE-MARK-MASQ|mark-for-masquerade")
_EXTERNAL = re.compile(
    r"(\S+-)?external-\S*|(sticky|wide)-\d+-external|KUBE-(EXT|XLB)-\S+|KUBE-NODE-PORT|KUBE-LOAD-BALANCER"
)
_FROM_OUTSIDE = "from outside the pod range"
_HAIRPIN = "hairpin: the endpoint connects to its own Service"


def is_cluster_ip(rules: RuleSet, address: int) -> bool:
    """Return whether an address is a cluster IP, by the rule set's sets or by kube-proxy's comments."""
    for name, collection in rules.collections.items():
        if _without_table(name) in _CLUSTER_IPS and any(
            _contains(item.key[0], address) for item in collection.elements
        ):
            return True
    internal = (rules.chains.get("nat KUBE-SERVICES"), rules.chains.get("filter KUBE-SERVICES"))
    return any(
        isinstance(step, Within) and step.field is Field.DESTINATION and contains(step.ranges, address)
        for chain, about in zip(internal, (r" cluster IP$", r"has no (local )?endpoints$"), strict=True)
        if chain is not None
        for rule in chain.rules
        if re.search(about, rule.comment)
        for step in rule.steps
    )


def _contains(part: int | tuple[int, int], number: int) -> bool:
    return part == number if isinstance(part, int) else part[0] <= number <= part[1]


def blocking_reason(trail: Sequence[RuleHit], policy: str) -> str:
    """Return why a packet is rejected or dropped; ``policy`` is the field of the traffic policy that applies to it."""
    if not trail:
        return ""
    # The verdict may be that of a chain to which the map leads, such as reset-or-drop.
    is_dropped = any(isinstance(step, Verdict) and step.kind == "drop" for step in trail[-1].actions)
    for hit in reversed(trail):
        is_verdict = any(isinstance(step, Verdict) for step in hit.actions)
        if is_verdict and _TO_ENDPOINTS.fullmatch(_without_table(hit.chain)):
            return _NO_LOCAL.format(policy=policy) if is_dropped else "no endpoints"
    last = trail[-1]
    text = last.rule.comment or last.rule.text
    for blocking_rule in _BLOCKING_RULES:
        if re.fullmatch(blocking_rule.chain, _without_table(last.chain)) and re.search(blocking_rule.text, text):
            return blocking_rule.reason.format(policy=policy)
    return "by a rule that does not belong to kube-proxy or knft"


def uninterpreted_rule(trail: Sequence[RuleHit]) -> str:
    """Return why the outcome of a packet is undecided: the uninterpreted rule that it hits last."""
    if not trail:
        return "a rule is not interpreted"
    last = trail[-1]
    text = last.rule.text or " ".join(step.text for step in last.rule.steps if isinstance(step, Unknown))
    line = f" (line {last.rule.line})" if last.rule.line else ""
    return f"a rule of {last.chain}{line} is not interpreted: {text}"


def masquerade_reason(trail: Sequence[RuleHit], outcome: Outcome, *, to_cluster_ip: bool) -> str:
    """Return why the endpoint does not see the client's address as the source."""
    reasons = dict.fromkeys(_masquerade_reasons(trail, outcome, to_cluster_ip=to_cluster_ip))
    return " and ".join(reason for reason in reasons if reason)


def _masquerade_reasons(trail: Sequence[RuleHit], outcome: Outcome, *, to_cluster_ip: bool) -> Iterator[str]:
    for previous, hit in zip((None, *trail), trail, strict=False):
        if any(isinstance(step, Translate) and step.kind == "snat" for step in hit.actions):
            if any(isinstance(step, InSet) for step in hit.rule.steps):
                yield _HAIRPIN
        elif any(_sets_bit(step) for step in hit.actions):
            # A chain that only sets the mark does not know the reason: the rule that jumps to it does.
            is_mark_chain = _MARKING.fullmatch(_without_table(hit.chain))
            deciding = previous if is_mark_chain and previous is not None else hit
            yield _mark_reason(deciding, outcome, to_cluster_ip=to_cluster_ip)


def _sets_bit(step: Step) -> bool:
    """Return whether a step sets a bit of the mark, as opposed to clearing it."""
    return isinstance(step, SetMark) and bool(step.flip & ~step.keep)


def _mark_reason(hit: RuleHit, outcome: Outcome, *, to_cluster_ip: bool) -> str:
    """Return why a rule marks packets for masquerading, by its matches, else by its chain."""
    for step in hit.rule.steps:
        reason = _match_reason(step, outcome)
        if reason:
            return reason
    if _EXTERNAL.fullmatch(_without_table(hit.chain)) or not to_cluster_ip:
        return "externalTrafficPolicy Cluster"
    return "--masquerade-all applies to all traffic to cluster IPs"


def _match_reason(step: Step, outcome: Outcome) -> str:
    match step:
        case Within(field=Field.SOURCE, inverted=True):
            return _FROM_OUTSIDE
        case Within(field=Field.SOURCE, ranges=ranges) if sole_value(ranges) in (outcome.address, None):
            return _HAIRPIN if sole_value(ranges) is not None else ""
        case Interface(field=Field.INPUT, inverted=True):
            return "not from a pod's interface"
        case InSet(key=(Field.SOURCE,), inverted=True):
            return _FROM_OUTSIDE
        case AddressType(field=Field.SOURCE):
            return "from the node itself, to which externalTrafficPolicy Local does not apply"
    return ""


def _without_table(name: str) -> str:
    """Return a chain's or collection's name without its table."""
    return name.rpartition(" ")[2]
