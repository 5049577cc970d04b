"""The differences between kube-proxy's modes that are meant (behaviour.md C.11 and what D and E say of each mode).

Each is written down as a change of one of the two rule sets, knft's or kube-proxy's, after which both do the same. A
difference of outcomes is by intent if such changes take it away, and only then; so none of them can cover up
anything else. The README shows this list, and scenarios name its reasons.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from knft.interpret.compare import meant_of_knft, meant_of_proxy
from knft.interpret.rules import RuleSet
from knft.takeover.names import Mode

Change = Callable[[RuleSet, RuleSet], RuleSet]
"""Takes a difference out of the first rule set, having seen the other side's."""


class Intent(Struct, frozen=True):
    """A difference that is meant: the modes that have it, what they do otherwise, and where behaviour.md says so.

    ``knft`` or ``kube_proxy`` is the change that takes it out of the rule set of that side.
    """

    reason: str
    modes: tuple[Mode, ...]
    what: str
    source: str
    knft: Change | None = None
    kube_proxy: Change | None = None


_IPTABLES, _IPVS, _BOTH = (Mode.IPTABLES,), (Mode.IPVS,), (Mode.IPTABLES, Mode.IPVS)

INTENTS = (
    Intent(
        "undefined port",
        _IPTABLES,
        "a port that a live cluster IP does not have is not refused: the packet goes its way",
        "C.4(10)",
        knft=meant_of_knft.undefined_ports,
    ),
    Intent(
        "unallocated address",
        _BOTH,
        "cluster IPs that no Service has are not dropped",
        "C.4(11)",
        knft=meant_of_knft.unallocated_addresses,
    ),
    Intent(
        "localhost",
        _IPTABLES,
        "NodePorts answer on loopback addresses of IPv4",
        "C.11, D.5",
        knft=meant_of_knft.node_ports_on_loopback,
    ),
    Intent(
        "every address",
        _BOTH,
        "without `--nodeport-addresses`, NodePorts answer on every address, not on the primary one",
        "C.11, I.5",
        knft=meant_of_knft.node_ports_everywhere,
    ),
    Intent(
        "refused everywhere",
        _IPTABLES,
        "NodePorts that nobody answers are refused or dropped on every local address",
        "D.5(5)",
        knft=meant_of_knft.node_ports_refused_everywhere,
    ),
    Intent(
        "own refusal",
        _IPTABLES,
        "the node's own packets to external IPs that nobody answers are not refused",
        "D.3",
        kube_proxy=meant_of_proxy.own_refusals,
    ),
    Intent(
        "guard without endpoints",
        _IPTABLES,
        "source ranges guard nothing while the Service has no endpoints",
        "D.5",
        knft=meant_of_knft.guards_of_endpoints,
    ),
    Intent(
        "claims",
        _BOTH,
        "of two Services that claim one frontend, either may have it, or both",
        "D.5, E.6",
        kube_proxy=meant_of_proxy.lost_claims,
    ),
    Intent(
        "remote hairpin",
        _BOTH,
        "a pod of another node that dials itself through this node is masqueraded",
        "C.6(1), D.5(12)",
        knft=meant_of_knft.every_hairpin,
    ),
    Intent(
        "another's cluster IP",
        _BOTH,
        "an external IP that is another Service's cluster IP does not hide clients as that cluster IP does",
        "C.4(23), D.5(8)",
        knft=meant_of_knft.masquerade_by_frontend,
    ),
    Intent(
        "localnet",
        _IPTABLES,
        "what the node sends to IPv4 loopback from other addresses is dropped",
        "D.4",
        kube_proxy=meant_of_proxy.localnet,
    ),
    Intent(
        "invalid packets",
        _IPTABLES,
        "packets that conntrack can place nowhere are dropped when they are forwarded",
        "C.11, D.6",
        kube_proxy=meant_of_proxy.invalid_packets,
    ),
    Intent(
        "forwarding rules",
        _BOTH,
        "forwarded Service traffic is accepted where the host's own rules would drop it",
        "C.11, D.6",
        kube_proxy=meant_of_proxy.forwarding_rules,
    ),
    Intent(
        "health check ports",
        _BOTH,
        "healthCheckNodePorts are accepted where the host's own rules would drop them",
        "C.11, D.5(6)",
        kube_proxy=meant_of_proxy.health_check_ports,
    ),
)
"""What differs by intent, in the order in which it is looked for."""


class Intended:
    """The intended differences of a mode, and the two rule sets with any of them taken out."""

    def __init__(self, mode: Mode, kube_proxy: RuleSet, knft: RuleSet) -> None:
        """Take the rule sets as they are."""
        self._kube_proxy, self._knft = kube_proxy, knft
        self._intents = tuple(intent for intent in INTENTS if mode in intent.modes)
        self.reasons = tuple(intent.reason for intent in self._intents)

    def without(self, reasons: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return both, kube-proxy's first, without some of the differences."""
        kube_proxy, knft = self._kube_proxy, self._knft
        for intent in self._intents:
            if intent.reason in reasons:
                if intent.kube_proxy is not None:
                    kube_proxy = intent.kube_proxy(kube_proxy, self._knft)
                if intent.knft is not None:
                    knft = intent.knft(knft, self._kube_proxy)
        return kube_proxy, knft


def explained(reasons: Iterable[str]) -> str:
    """Return what intended differences are, in words."""
    what = {intent.reason: intent.what for intent in INTENTS}
    return "; ".join(what[reason] for reason in reasons)


def table() -> str:
    """Return the list as the README's table."""
    rows = (f"| {', '.join(intent.modes)} | {intent.what} | {intent.source} |" for intent in INTENTS)
    return "\n".join(["| modes | what they do otherwise | behaviour.md |", "| --- | --- | --- |", *rows])
