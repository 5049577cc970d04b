"""The differences between kube-proxy's modes that are meant (behaviour.md C.11 and what D and E say of each mode).

Each is written down as a change of one of the two rule sets, knft's or kube-proxy's, after which both do the same. A
difference of outcomes is by intent if such changes take it away, and only then; so none of them can cover up
anything else. The README shows this list, and scenarios name its reasons.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from knft.interpret.compare.expected_differences import iptables_edits as of_proxy
from knft.interpret.compare.expected_differences import ipvs_edits as of_ipvs
from knft.interpret.compare.expected_differences import knft_edits as of_knft
from knft.interpret.rules import RuleSet
from knft.takeover.names import Mode

Edit = Callable[[RuleSet, RuleSet], RuleSet]
"""Takes a difference out of the first rule set, having seen the other side's."""


class Edits(Struct, frozen=True):
    """What takes a difference out of the rule set of one side, or of both."""

    knft: Edit | None = None
    kube_proxy: Edit | None = None


class ExpectedDifference(Struct, frozen=True):
    """A difference that is meant: what modes do otherwise, where behaviour.md says so, and what takes it out."""

    reason: str
    description: str
    source: str
    iptables: Edits | None = None
    ipvs: Edits | None = None
    nftables: Edits | None = None

    def edits_for(self, mode: Mode) -> Edits | None:
        """Return the changes in a mode, None where it does not differ."""
        return {Mode.IPTABLES: self.iptables, Mode.IPVS: self.ipvs, Mode.NFTABLES: self.nftables}.get(mode)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The older modes that differ; kube-proxy's own mode nftables does so up to some version alone."""
        return tuple(mode for mode in (Mode.IPTABLES, Mode.IPVS) if self.edits_for(mode) is not None)


EXPECTED_DIFFERENCES = (
    ExpectedDifference(
        "undefined port",
        "a port that a live cluster IP does not have is not refused: the packet goes its way",
        "C.4(10)",
        iptables=Edits(knft=of_knft.pass_undefined_ports),
    ),
    ExpectedDifference(
        "unallocated address",
        "cluster IPs that no Service has are not dropped",
        "C.4(11)",
        iptables=Edits(knft=of_knft.pass_unallocated_addresses),
        ipvs=Edits(knft=of_knft.pass_unallocated_addresses),
    ),
    ExpectedDifference(
        "localhost",
        "NodePorts answer on loopback addresses of IPv4",
        "C.11, D.5",
        iptables=Edits(knft=of_knft.open_node_ports_on_loopback),
    ),
    ExpectedDifference(
        "every address",
        "without `--nodeport-addresses`, NodePorts answer on every address, not on the primary one",
        "C.11, I.5",
        iptables=Edits(knft=of_knft.open_node_ports_on_all_addresses),
        ipvs=Edits(knft=of_ipvs.open_node_ports_at_virtual_servers),
    ),
    ExpectedDifference(
        "refused everywhere",
        "NodePorts that nobody answers are refused or dropped on every local address",
        "D.5(5)",
        iptables=Edits(knft=of_knft.reject_node_ports_on_all_addresses),
    ),
    ExpectedDifference(
        "own refusal",
        "the node's own packets to external IPs that nobody answers are not refused",
        "D.3",
        iptables=Edits(kube_proxy=of_proxy.reject_node_packets_too),
    ),
    ExpectedDifference(
        "guard without endpoints",
        "source ranges guard nothing while the Service has no endpoints",
        "D.5",
        iptables=Edits(knft=of_knft.check_source_ranges_with_endpoints_only),
    ),
    ExpectedDifference(
        "any own source",
        "a node whose address is in a source range may dial from every address it has",
        "E.6, E.7(9)",
        ipvs=Edits(knft=of_ipvs.check_node_source_ranges_like_kube_proxy),
    ),
    ExpectedDifference(
        "policy Local, nobody here",
        "where policy Local finds no endpoint on the node, others answer or the client is refused; nothing is dropped",
        "E.6",
        ipvs=Edits(knft=of_ipvs.fall_back_to_remote_endpoints, kube_proxy=of_ipvs.drop_without_local_endpoints),
    ),
    ExpectedDifference(
        "policy Local, from here",
        "under external policy Local, the node and its pods reach the endpoints on the node alone",
        "E.6",
        ipvs=Edits(knft=of_ipvs.use_external_local_for_node_and_pods),
    ),
    ExpectedDifference(
        "bound addresses",
        "the node's own packets to a frontend have its address as their source, as it is bound to the node",
        "E.6, E.7(3)",
        ipvs=Edits(kube_proxy=of_ipvs.unbind_sources),
    ),
    ExpectedDifference(
        "refused ports",
        "ports that an external IP does not have are refused, as the address is bound to the node",
        "E.7(13)",
        ipvs=Edits(kube_proxy=of_ipvs.reject_cluster_ip_ports_only),
    ),
    ExpectedDifference(
        "affinity by frontend",
        "each frontend of a Service remembers its own clients",
        "E.6",
        ipvs=Edits(knft=of_ipvs.keep_affinity_by_frontend),
    ),
    ExpectedDifference(
        "marked everywhere",
        "what the node sends to itself is masqueraded where the port is a NodePort's number or an endpoint's",
        "E.7(2), (6)",
        ipvs=Edits(kube_proxy=of_ipvs.masquerade_virtual_servers_only),
    ),
    ExpectedDifference(
        "guarded throughout",
        "source ranges apply to packets that conntrack can place nowhere",
        "E.7(2)",
        ipvs=Edits(kube_proxy=of_ipvs.check_source_ranges_of_connections_only),
    ),
    ExpectedDifference(
        "claims",
        "of two Services that claim one frontend, either may have it, or both",
        "D.5, E.6",
        iptables=Edits(kube_proxy=of_proxy.remove_losing_claims),
        ipvs=Edits(kube_proxy=of_ipvs.drop_contested_frontends, knft=of_ipvs.drop_contested_frontends_in_knft),
    ),
    ExpectedDifference(
        "remote hairpin",
        "a pod of another node that dials itself through this node is masqueraded",
        "C.6(1), D.5(12)",
        iptables=Edits(knft=of_knft.masquerade_every_hairpin),
        nftables=Edits(
            knft=of_knft.masquerade_every_hairpin
        ),  # up to 1.35, where each endpoint's chain looks at who dials
    ),
    ExpectedDifference(
        "another's cluster IP",
        "an external IP that is another Service's cluster IP does not hide clients as that cluster IP does",
        "C.4(23), D.5(8)",
        iptables=Edits(knft=of_knft.masquerade_by_cluster_ip_port),
        ipvs=Edits(knft=of_knft.masquerade_by_cluster_ip_port),
    ),
    ExpectedDifference(
        "localnet",
        "what the node sends to IPv4 loopback from other addresses is dropped",
        "D.4",
        iptables=Edits(kube_proxy=of_proxy.remove_localnet_drop),
    ),
    ExpectedDifference(
        "invalid packets",
        "packets that conntrack can place nowhere are dropped when they are forwarded",
        "C.11, D.6",
        iptables=Edits(kube_proxy=of_proxy.remove_invalid_drop),
    ),
    ExpectedDifference(
        "forwarding rules",
        "forwarded Service traffic is accepted where the host's own rules would drop it",
        "C.11, D.6",
        iptables=Edits(kube_proxy=of_proxy.remove_forward_accepts),
    ),
    ExpectedDifference(
        "health check ports",
        "healthCheckNodePorts are accepted where the host's own rules would drop them",
        "C.11, D.5(6), E.7(12), (13)",
        iptables=Edits(kube_proxy=of_proxy.remove_health_check_ports),
        ipvs=Edits(kube_proxy=of_ipvs.remove_health_check_ports),
    ),
)
"""What differs by intent, in the order in which it is looked for."""


class ExpectedDifferences:
    """The intended differences of a mode, and the two rule sets with any of them taken out."""

    def __init__(self, mode: Mode | None, kube_proxy: RuleSet, knft: RuleSet) -> None:
        """Take the rule sets as they are; without a mode, where both are knft's, nothing is meant to differ."""
        self._kube_proxy, self._knft = kube_proxy, knft
        found = {intent.reason: intent.edits_for(mode) for intent in EXPECTED_DIFFERENCES} if mode is not None else {}
        self._changes = {reason: changes for reason, changes in found.items() if changes is not None}
        self.reasons = tuple(self._changes)

    def rule_sets_without(self, reasons: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return both, kube-proxy's first, without some of the differences."""
        kube_proxy, knft = self._kube_proxy, self._knft
        for reason, changes in self._changes.items():
            if reason in reasons:
                if changes.kube_proxy is not None:
                    kube_proxy = changes.kube_proxy(kube_proxy, self._knft)
                if changes.knft is not None:
                    knft = changes.knft(knft, self._kube_proxy)
        return kube_proxy, knft


def descriptions(reasons: Iterable[str]) -> str:
    """Return what intended differences are, in words."""
    what = {intent.reason: intent.description for intent in EXPECTED_DIFFERENCES}
    return "; ".join(what[reason] for reason in reasons)


def markdown_table() -> str:
    """Return the list as the README's table."""
    rows = (
        f"| {', '.join(mode.value for mode in intent.modes)} | {intent.description} | {intent.source} |"
        for intent in EXPECTED_DIFFERENCES
    )
    return "\n".join(["| modes | what they do otherwise | behaviour.md |", "| --- | --- | --- |", *rows])
