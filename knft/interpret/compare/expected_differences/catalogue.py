"""The catalogue of expected differences between kube-proxy's modes and knft.

Each is defined by edits of kube-proxy's or knft's rule set after which both rule sets give the same outcome. A
difference between outcomes is expected if, and only if, such edits remove it, so an entry cannot hide other
differences. docs/comparing.md lists them; ``knft diff`` and the scenarios of the tests refer to them by ``reason``.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from knft.interpret.compare.expected_differences import iptables_edits, ipvs_edits, knft_edits, nftables_edits
from knft.interpret.rules import RuleSet
from knft.proxy_mode import Mode

Edit = Callable[[RuleSet, RuleSet], RuleSet]
"""Returns the first rule set without the difference; the second is the rule set of the other side."""


class Edits(Struct, frozen=True):
    """The edits that remove a difference, for one side or for both."""

    knft: Edit | None = None
    kube_proxy: Edit | None = None


class ExpectedDifference(Struct, frozen=True):
    """An expected difference: its name, kube-proxy's behaviour, where that is documented, and the edits by mode."""

    reason: str
    description: str
    sources: tuple[str, ...]
    iptables: Edits | None = None
    ipvs: Edits | None = None
    nftables: Edits | None = None
    nftables_versions: str = "nftables up to 1.35"
    """The versions of mode nftables that differ, if ``nftables`` is set."""

    def edits_for(self, mode: Mode) -> Edits | None:
        """Return the edits for a mode, None if the mode has no such difference."""
        return {Mode.IPTABLES: self.iptables, Mode.IPVS: self.ipvs, Mode.NFTABLES: self.nftables}.get(mode)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Those of the modes iptables and ipvs that differ."""
        return tuple(mode for mode in (Mode.IPTABLES, Mode.IPVS) if self.edits_for(mode) is not None)


_NFTABLES, _IPTABLES, _IPVS = "docs/behaviour/nftables.md", "docs/behaviour/iptables.md", "docs/behaviour/ipvs.md"

EXPECTED_DIFFERENCES = (
    ExpectedDifference(
        "undefined port",
        "packets to unused ports of a cluster IP are not rejected",
        (f"{_NFTABLES}#undefined-ports",),
        iptables=Edits(knft=knft_edits.pass_undefined_ports),
    ),
    ExpectedDifference(
        "unallocated cluster IP",
        "packets to unallocated cluster IPs are not dropped",
        (f"{_NFTABLES}#unallocated-cluster-ips",),
        iptables=Edits(knft=knft_edits.pass_unallocated_addresses),
        ipvs=Edits(knft=knft_edits.pass_unallocated_addresses),
    ),
    ExpectedDifference(
        "NodePorts on loopback",
        "NodePorts are reachable at IPv4 loopback addresses",
        (f"{_NFTABLES}#differences", f"{_IPTABLES}#service-ports"),
        iptables=Edits(knft=knft_edits.open_node_ports_on_loopback),
    ),
    ExpectedDifference(
        "NodePorts on all addresses",
        "without `--nodeport-addresses`, NodePorts are reachable at all node addresses, not only at the primary one",
        (f"{_NFTABLES}#differences", "docs/behaviour/configuration.md#node-addresses"),
        iptables=Edits(knft=knft_edits.open_node_ports_on_all_addresses),
        ipvs=Edits(knft=ipvs_edits.open_node_ports_at_virtual_servers),
    ),
    ExpectedDifference(
        "NodePorts rejected everywhere",
        "packets to NodePorts without endpoints are rejected or dropped at all local addresses",
        (f"{_IPTABLES}#service-ports",),
        iptables=Edits(knft=knft_edits.reject_node_ports_on_all_addresses),
    ),
    ExpectedDifference(
        "unrejected node packets",
        "the node's own packets to external IPs without endpoints are not rejected",
        (f"{_IPTABLES}#jump-rules",),
        iptables=Edits(kube_proxy=iptables_edits.reject_node_packets_too),
    ),
    ExpectedDifference(
        "source ranges without endpoints",
        "loadBalancerSourceRanges do not apply while the Service has no endpoints",
        (f"{_IPTABLES}#service-ports",),
        iptables=Edits(knft=knft_edits.check_source_ranges_with_endpoints_only),
    ),
    ExpectedDifference(
        "any node source address",
        "a node with one address in loadBalancerSourceRanges can connect from all its addresses",
        (f"{_IPVS}#service-ports", f"{_IPVS}#rules"),
        ipvs=Edits(knft=ipvs_edits.check_node_source_ranges_like_kube_proxy),
    ),
    ExpectedDifference(
        "policy Local without local endpoints",
        "with policy Local and no local endpoint, packets go to remote endpoints or are rejected, and are not dropped",
        (f"{_IPVS}#service-ports",),
        ipvs=Edits(knft=ipvs_edits.fall_back_to_remote_endpoints, kube_proxy=ipvs_edits.drop_without_local_endpoints),
    ),
    ExpectedDifference(
        "policy Local for the node and its pods",
        "with externalTrafficPolicy Local, the node and its pods reach only the endpoints on the node",
        (f"{_IPVS}#service-ports",),
        ipvs=Edits(knft=ipvs_edits.use_external_local_for_node_and_pods),
    ),
    ExpectedDifference(
        "frontend as source address",
        "the node's own packets to a frontend have the frontend's address as source, because kube-ipvs0 has it",
        (f"{_IPVS}#service-ports", f"{_IPVS}#rules"),
        ipvs=Edits(kube_proxy=ipvs_edits.keep_sources_of_node_packets),
    ),
    ExpectedDifference(
        "external IP ports rejected",
        "packets to unused ports of an external IP are rejected, because kube-ipvs0 has the address",
        (f"{_IPVS}#rules",),
        ipvs=Edits(kube_proxy=ipvs_edits.reject_cluster_ip_ports_only),
    ),
    ExpectedDifference(
        "affinity by frontend",
        "session affinity is kept per frontend, not per Service port",
        (f"{_IPVS}#service-ports",),
        ipvs=Edits(knft=ipvs_edits.keep_affinity_by_frontend),
    ),
    ExpectedDifference(
        "consistent hashing",
        "annotation `knft.dev/load-balancing` has no effect: endpoints are chosen at random or in turn",
        ("docs/behaviour/load-balancing.md#annotation",),
        iptables=Edits(knft=knft_edits.choose_endpoints_at_random),
        ipvs=Edits(knft=knft_edits.choose_endpoints_at_random),
        nftables=Edits(knft=knft_edits.choose_endpoints_at_random),
        nftables_versions="nftables",
    ),
    ExpectedDifference(
        "masqueraded node packets",
        "the node's packets to itself are masqueraded if their port is a NodePort or the port of an endpoint",
        (f"{_IPVS}#rules",),
        ipvs=Edits(kube_proxy=ipvs_edits.masquerade_virtual_servers_only),
    ),
    ExpectedDifference(
        "source ranges for invalid packets",
        "loadBalancerSourceRanges also apply to packets in conntrack state INVALID",
        (f"{_IPVS}#rules",),
        ipvs=Edits(kube_proxy=ipvs_edits.check_source_ranges_of_connections_only),
    ),
    ExpectedDifference(
        "contested frontend",
        "if two Services claim one frontend, packets reach either of them or both",
        (f"{_IPTABLES}#service-ports", f"{_IPVS}#service-ports", f"{_NFTABLES}#rendered"),
        iptables=Edits(kube_proxy=iptables_edits.remove_losing_claims),
        ipvs=Edits(kube_proxy=ipvs_edits.drop_contested_frontends, knft=ipvs_edits.drop_contested_frontends_in_knft),
        nftables=Edits(kube_proxy=nftables_edits.give_contested_frontends_to_owners),
        nftables_versions="nftables",
    ),
    ExpectedDifference(
        "hairpin of a remote pod",
        "connections of a remote pod to itself through this node are masqueraded",
        (f"{_NFTABLES}#local-endpoint-hairpin", f"{_IPTABLES}#service-ports"),
        iptables=Edits(knft=knft_edits.masquerade_every_hairpin),
        nftables=Edits(knft=knft_edits.masquerade_every_hairpin),  # up to 1.35: its endpoint chains compare the source
    ),
    ExpectedDifference(
        "external IP that is a cluster IP",
        "packets to an external IP that is also a cluster IP of another Service are not masqueraded",
        (f"{_NFTABLES}#masquerade-to-cluster-ips", f"{_IPTABLES}#service-ports"),
        iptables=Edits(knft=knft_edits.masquerade_by_cluster_ip_port),
        ipvs=Edits(knft=knft_edits.masquerade_by_cluster_ip_port),
    ),
    ExpectedDifference(
        "non-loopback source to loopback",
        "packets from non-loopback addresses of the node to 127.0.0.0/8 are dropped",
        (f"{_IPTABLES}#restore-input",),
        iptables=Edits(kube_proxy=iptables_edits.remove_localnet_drop),
    ),
    ExpectedDifference(
        "invalid packets",
        "forwarded packets in conntrack state INVALID are dropped",
        (f"{_NFTABLES}#differences", f"{_IPTABLES}#after-the-services"),
        iptables=Edits(kube_proxy=iptables_edits.remove_invalid_drop),
    ),
    ExpectedDifference(
        "dropped invalid packets",
        "forwarded packets in conntrack state INVALID are not dropped, as they are with `--drop-invalid-packets`",
        ("docs/behaviour/invalid-packets.md#comparing",),
        iptables=Edits(knft=knft_edits.forward_invalid_packets),  # with nf_conntrack_tcp_be_liberal
        ipvs=Edits(knft=knft_edits.forward_invalid_packets),
        nftables=Edits(knft=knft_edits.forward_invalid_packets),
        nftables_versions="nftables",
    ),
    ExpectedDifference(
        "forwarding rules",
        "forwarded Service traffic is accepted even if the host's own rules would drop it",
        (f"{_NFTABLES}#differences", f"{_IPTABLES}#after-the-services"),
        iptables=Edits(kube_proxy=iptables_edits.remove_forward_accepts),
    ),
    ExpectedDifference(
        "health check ports",
        "packets to healthCheckNodePorts are accepted even if the host's own rules would drop them",
        (f"{_NFTABLES}#differences", f"{_IPTABLES}#service-ports", f"{_IPVS}#rules"),
        iptables=Edits(kube_proxy=iptables_edits.remove_health_check_ports),
        ipvs=Edits(kube_proxy=ipvs_edits.remove_health_check_ports),
    ),
)
"""All expected differences, in the order in which a comparison tries and lists them."""


class ExpectedDifferences:
    """The expected differences of one mode, and the edits of the two rule sets that remove them."""

    def __init__(self, mode: Mode | None, kube_proxy: RuleSet, knft: RuleSet) -> None:
        """Store both rule sets; without a mode both are knft's, and no difference is expected."""
        by_reason = {item.reason: item.edits_for(mode) for item in EXPECTED_DIFFERENCES} if mode is not None else {}
        edits = {reason: edits for reason, edits in by_reason.items() if edits is not None}
        self.names = tuple(edits)
        self._kube_proxy = _EditedSide(
            kube_proxy, knft, {name: item.kube_proxy for name, item in edits.items() if item.kube_proxy is not None}
        )
        self._knft = _EditedSide(
            knft, kube_proxy, {name: item.knft for name, item in edits.items() if item.knft is not None}
        )

    def edited_rule_sets(self, names: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return kube-proxy's and knft's rule set, edited so that these differences disappear.

        A side is the same object for all names that need the same edits of it.
        """
        return self._kube_proxy.edited(names), self._knft.edited(names)


class _EditedSide:
    """One rule set and its edits, by name; each edit also gets the other side's rule set, unedited."""

    def __init__(self, rules: RuleSet, other: RuleSet, edits: Mapping[str, Edit]) -> None:
        self._other = other
        self._edits = edits
        self._edited = {frozenset[str](): rules}

    def edited(self, names: frozenset[str]) -> RuleSet:
        """Return the rule set after the edits of these names, in the order of the catalogue."""
        own = names.intersection(self._edits)
        if own not in self._edited:
            edited = self._edited[frozenset()]
            for name, edit in self._edits.items():
                if name in own:
                    edited = edit(edited, self._other)
            self._edited[own] = edited
        return self._edited[own]


def descriptions(reasons: Iterable[str]) -> str:
    """Return the descriptions of expected differences, joined by semicolons."""
    by_reason = {item.reason: item.description for item in EXPECTED_DIFFERENCES}
    return "; ".join(by_reason[reason] for reason in reasons)


def markdown_table() -> str:
    """Return the catalogue as a Markdown table, with links that are relative to docs/."""
    rows = [
        (item.reason, _mode_names(item), item.description, ", ".join(map(_link, item.sources)))
        for item in EXPECTED_DIFFERENCES
    ]
    header = ("reason", "kube-proxy mode", "kube-proxy's behaviour", "documented in"), ("---",) * 4
    return "\n".join(f"| {' | '.join(row)} |" for row in (*header, *rows))


def _mode_names(item: ExpectedDifference) -> str:
    names = [mode.value for mode in item.modes]
    return ", ".join([*names, *([item.nftables_versions] if item.nftables is not None else [])])


def _link(source: str) -> str:
    target = source.removeprefix("docs/")
    page, _, anchor = target.rpartition("/")[2].partition(".md#")
    return f"[{page}: {anchor}]({target})"
