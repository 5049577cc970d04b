"""The rules that no Service changes, and those that lead to NodePorts (D.4, D.6)."""

from collections.abc import Iterator

from knft.model import addresses
from knft.model.names import Family
from knft_compat import rules
from knft_compat.cluster import LOOPBACK_ADDRESSES, LOOPBACK_NETWORKS, Node
from knft_compat.iptables.names import EXTERNAL_SERVICES, KUBELET_FIREWALL, NODE_PORTS
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.terms import Terms
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import Rule, comment

FILTER_CHAINS = (SERVICES, EXTERNAL_SERVICES, FORWARD, NODE_PORTS, PROXY_FIREWALL)
NAT_CHAINS = (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQ)

COUNT_INVALID = "ct_state_invalid_dropped_pkts"
"""The counter of packets that conntrack found invalid."""

_LAST_RULE = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"


def localhost_guard() -> Rule:
    """Return the rule that keeps others on the link away from loopback addresses, which ``route_localnet`` opens."""
    loopback = LOOPBACK_NETWORKS[Family.IPV4]
    addressed = ("-d", loopback, "!", "-s", loopback)
    unasked = ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT")
    said = comment("block incoming localnet connections")
    return Rule(KUBELET_FIREWALL, (*said, *addressed, *unasked, "-j", "DROP"))


def forwarding(terms: Terms, settings: Settings) -> Iterator[Rule]:
    """Yield the rules for forwarded packets."""
    if not settings.conntrack_is_liberal:
        counted = ("-m", "nfacct", "--nfacct-name", COUNT_INVALID) if terms.has_nfacct else ()
        yield Rule(FORWARD, ("-m", "conntrack", "--ctstate", "INVALID", *counted, "-j", "DROP"))
    yield from rules.forwarding(terms.masquerade)


def node_port_jumps(node: Node, terms: Terms) -> Iterator[Rule]:
    """Yield the last rules of the chain of Services, which lead to NodePorts."""
    matches: list[tuple[str, ...]] = [("-m", "addrtype", "--dst-type", "LOCAL", *_but_loopback(terms))]
    if node.nodeport_cidrs:
        matches = [("-d", address) for address in _node_port_addresses(node, terms)]
    for match in matches:
        yield Rule(SERVICES, (*comment(_LAST_RULE), *match, "-j", NODE_PORTS))


def _but_loopback(terms: Terms) -> tuple[str, ...]:
    return () if terms.localhost else ("!", "-d", LOOPBACK_NETWORKS[terms.family])


def _node_port_addresses(node: Node, terms: Terms) -> tuple[str, ...]:
    """Return the node's addresses that accept NodePorts, sorted, where kube-proxy has them in any order."""
    loopback = (LOOPBACK_ADDRESSES[node.family],) if terms.localhost else ()
    candidates = sorted({*node.local_addresses, *loopback})
    return tuple(
        address for address in candidates if any(addresses.contains(cidr, address) for cidr in node.nodeport_cidrs)
    )
