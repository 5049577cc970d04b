"""The rules that do not depend on Services, and the jumps to NodePorts (docs/behaviour/iptables.md#restore-input)."""

from collections.abc import Iterator

from knft.families import Family
from knft.model import addresses
from knft_compat import rules
from knft_compat.iptables.names import EXTERNAL_SERVICES, KUBELET_FIREWALL, NODE_PORTS
from knft_compat.iptables.render_context import RenderContext
from knft_compat.iptables.settings import Settings
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import Rule, comment
from knft_compat.sync_input import LOOPBACK_ADDRESSES, LOOPBACK_NETWORKS, Node

FILTER_CHAINS = (SERVICES, EXTERNAL_SERVICES, FORWARD, NODE_PORTS, PROXY_FIREWALL)
NAT_CHAINS = (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQ)

INVALID_PACKETS_COUNTER = "ct_state_invalid_dropped_pkts"
"""The nfacct counter of dropped packets in conntrack state INVALID."""

_NODE_PORTS_COMMENT = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"


def localnet_block_rule() -> Rule:
    """Return the rule that blocks packets from the network to 127.0.0.0/8, which ``route_localnet`` would allow."""
    loopback = LOOPBACK_NETWORKS[Family.IPV4]
    addressed = ("-d", loopback, "!", "-s", loopback)
    not_established = ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT")
    label = comment("block incoming localnet connections")
    return Rule(KUBELET_FIREWALL, (*label, *addressed, *not_established, "-j", "DROP"))


def forward_rules(context: RenderContext, settings: Settings) -> Iterator[Rule]:
    """Yield the rules of forwarded packets."""
    if not settings.conntrack_is_liberal:
        counted = ("-m", "nfacct", "--nfacct-name", INVALID_PACKETS_COUNTER) if context.has_nfacct else ()
        yield Rule(FORWARD, ("-m", "conntrack", "--ctstate", "INVALID", *counted, "-j", "DROP"))
    yield from rules.forward_rules(context.masquerade)


def node_port_jumps(node: Node, context: RenderContext) -> Iterator[Rule]:
    """Yield the last rules of KUBE-SERVICES, which jump to KUBE-NODEPORTS."""
    matches: list[tuple[str, ...]] = [("-m", "addrtype", "--dst-type", "LOCAL", *_exclude_loopback(context))]
    if node.nodeport_cidrs:
        matches = [("-d", address) for address in _node_port_addresses(node, context)]
    for match in matches:
        yield Rule(SERVICES, (*comment(_NODE_PORTS_COMMENT), *match, "-j", NODE_PORTS))


def _exclude_loopback(context: RenderContext) -> tuple[str, ...]:
    return () if context.localhost_node_ports else ("!", "-d", LOOPBACK_NETWORKS[context.family])


def _node_port_addresses(node: Node, context: RenderContext) -> tuple[str, ...]:
    """Return the node's addresses that accept NodePorts, sorted; kube-proxy's order is random."""
    loopback = (LOOPBACK_ADDRESSES[node.family],) if context.localhost_node_ports else ()
    candidates = sorted({*node.local_addresses, *loopback})
    return tuple(
        address for address in candidates if any(addresses.contains(cidr, address) for cidr in node.nodeport_cidrs)
    )
