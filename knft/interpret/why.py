"""Why a rule set does what it does to a packet, where the rules that decided are knft's or kube-proxy's.

A packet's trail in, a sentence out; "" where nobody knows. Rules are known by the chains that they stand in, by what
they look at, and by their comments.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from knft.interpret.outcomes import Outcome, Passed
from knft.interpret.ranges import contains, only
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
from knft.interpret.walk.recording import SERVERS
from knft.takeover.names import ipv6_set

_CLUSTER_IPS = frozenset({"cluster-ips", "KUBE-CLUSTER-IP", ipv6_set("KUBE-CLUSTER-IP")})
"""Sets of cluster IPs: knft's, kube-proxy's in nftables mode, and its ipsets."""
_NO_LOCAL = "no local endpoints, {policy} Local"
_NOT_ALLOWED = "the source is not in loadBalancerSourceRanges"


class _Refusal(NamedTuple):
    """A rule that refuses: patterns of its chain and of its comment or text, and what it means."""

    chain: str
    said: str
    means: str


_REFUSALS = (
    _Refusal(r"cluster-ips-check", r"undefined ports|invalid ports", "the cluster IP has no such port"),
    _Refusal(r"cluster-ips-check", r"unallocated", "no Service has this cluster IP"),
    _Refusal(r"firewall-\S+|KUBE-FW-\S+|KUBE-PROXY-FIREWALL|KUBE-SOURCE-RANGES-FIREWALL", "", _NOT_ALLOWED),
    _Refusal(r"KUBE-\S+", r"has no local endpoints", _NO_LOCAL),
    _Refusal(r"KUBE-\S+", r"has no endpoints", "no endpoints"),
    _Refusal(r"KUBE-XLB-\S+|KUBE-SVL-\S+", r"no local endpoints", _NO_LOCAL),
    _Refusal(r"KUBE-IPVS-OUT-FILTER", "", "the node is not in loadBalancerSourceRanges"),
    _Refusal(r"KUBE-IPVS-FILTER", "", "the node has this address for IPVS alone, and no virtual server has this port"),
    _Refusal(r"KUBE-FIREWALL", "", "the kubelet lets nobody else to loopback addresses"),
    _Refusal(r"KUBE-FORWARD", r"INVALID", "conntrack cannot place the packet"),
    _Refusal(SERVERS, "", "no endpoints, or none on this node where the traffic policy is Local"),
    _Refusal(r".*", r"^policy drop$", "no rule of the chain accepts the packet, and its policy is drop"),
)
"""The first that fits is meant."""

_TO_ENDPOINTS = re.compile(r"(service|nodeport)-endpoints-check")
_MARKING = re.compile(r"KUBE-MARK-MASQ|mark-for-masquerade")
_EXTERNAL = re.compile(r"(\S+-)?external-\S*|sticky-\d+-external|KUBE-(EXT|XLB)-\S+|KUBE-NODE-PORT|KUBE-LOAD-BALANCER")
_FROM_OUTSIDE = "from outside the pod range"
_HAIRPIN = "an endpoint dials its own Service"


def is_cluster_ip(rules: RuleSet, address: int) -> bool:
    """Tell whether a rule set takes an address for a cluster IP: by its sets, or by comments of iptables' mode."""
    for name, collection in rules.collections.items():
        if _last(name) in _CLUSTER_IPS and any(_holds(item.key[0], address) for item in collection.elements):
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


def _holds(part: int | tuple[int, int], number: int) -> bool:
    return part == number if isinstance(part, int) else part[0] <= number <= part[1]


def refusal(trail: Sequence[Passed], policy: str) -> str:
    """Return why a packet is refused or dropped; ``policy`` is the traffic policy that is about it."""
    if not trail:
        return ""
    for passed in reversed(trail):
        if _TO_ENDPOINTS.fullmatch(_last(passed.chain)) and any(isinstance(step, Verdict) for step in passed.did):
            is_dropped = any(isinstance(step, Verdict) and step.kind == "drop" for step in passed.did)
            return _NO_LOCAL.format(policy=policy) if is_dropped else "no endpoints"
    last = trail[-1]
    said = last.rule.comment or last.rule.text
    for known in _REFUSALS:
        if re.fullmatch(known.chain, _last(last.chain)) and re.search(known.said, said):
            return known.means.format(policy=policy)
    return "by a rule that is not about Services"


def unread(trail: Sequence[Passed]) -> str:
    """Return why nobody knows what becomes of a packet: the rule that is not interpreted."""
    if not trail:
        return "a rule is not interpreted"
    last = trail[-1]
    said = last.rule.text or " ".join(step.text for step in last.rule.steps if isinstance(step, Unknown))
    line = f" (line {last.rule.line})" if last.rule.line else ""
    return f"a rule of {last.chain}{line} is not interpreted: {said}"


def masquerade(trail: Sequence[Passed], outcome: Outcome, *, to_cluster_ip: bool) -> str:
    """Return why the endpoint sees another source than the client's."""
    reasons = dict.fromkeys(_reasons(trail, outcome, to_cluster_ip=to_cluster_ip))
    return " and ".join(reason for reason in reasons if reason)


def _reasons(trail: Sequence[Passed], outcome: Outcome, *, to_cluster_ip: bool) -> Iterator[str]:
    for before, passed in zip((None, *trail), trail, strict=False):
        if any(isinstance(step, Translate) and step.what == "snat" for step in passed.did):
            if any(isinstance(step, InSet) for step in passed.rule.steps):
                yield _HAIRPIN
        elif any(_sets(step) for step in passed.did):
            is_marking = before is not None and _MARKING.fullmatch(_last(passed.chain))
            yield _asked(before if is_marking and before is not None else passed, outcome, to_cluster_ip=to_cluster_ip)


def _sets(step: Step) -> bool:
    """Tell whether a step puts a bit into the mark, and does not just take it out again."""
    return isinstance(step, SetMark) and bool(step.flip & ~step.keep)


def _asked(passed: Passed, outcome: Outcome, *, to_cluster_ip: bool) -> str:
    """Return why a rule asks for masquerading: by what it looks at, otherwise by the chain that it is in."""
    for step in passed.rule.steps:
        found = _by_test(step, outcome)
        if found:
            return found
    if _EXTERNAL.fullmatch(_last(passed.chain)) or not to_cluster_ip:
        return "externalTrafficPolicy Cluster"
    return "all traffic to cluster IPs is (--masquerade-all)"


def _by_test(step: Step, outcome: Outcome) -> str:
    match step:
        case Within(field=Field.SOURCE, inverted=True):
            return _FROM_OUTSIDE
        case Within(field=Field.SOURCE, ranges=ranges) if only(ranges) in (outcome.address, None):
            return _HAIRPIN if only(ranges) is not None else ""
        case Interface(field=Field.INPUT, inverted=True):
            return "not from a pod's interface"
        case InSet(key=(Field.SOURCE,), inverted=True):
            return _FROM_OUTSIDE
        case AddressType(field=Field.SOURCE):
            return "from the node itself, which externalTrafficPolicy Local does not bind"
    return ""


def _last(name: str) -> str:
    """Return a name without its table."""
    return name.rpartition(" ")[2]
