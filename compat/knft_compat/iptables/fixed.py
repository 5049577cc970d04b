"""The rules that no Service changes, and those that lead to NodePorts (D.4, D.6)."""

from collections.abc import Iterator

from knft.model import addresses
from knft.model.names import Family
from knft_compat.cluster import LOOPBACK_ADDRESSES, LOOPBACK_NETWORKS, Masquerade, Node
from knft_compat.iptables.names import (
    EXTERNAL_SERVICES,
    FORWARD,
    KUBELET_FIREWALL,
    MARK_MASQ,
    NODE_PORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.terms import Terms
from knft_compat.rules import Rule, comment, mark_match

FILTER_CHAINS = (SERVICES, EXTERNAL_SERVICES, FORWARD, NODE_PORTS, PROXY_FIREWALL)
NAT_CHAINS = (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQ)

COUNT_INVALID = "ct_state_invalid_dropped_pkts"
"""The counter of packets that conntrack found invalid."""

_LAST_RULE = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"


def masquerading(masquerade: Masquerade) -> Iterator[Rule]:
    """Yield the rules that set the mark, and those that masquerade what has it."""
    mark = masquerade.mark_text
    yield Rule(POSTROUTING, ("-m", "mark", "!", "--mark", f"{mark}/{mark}", "-j", "RETURN"))
    # Without the mark, a packet that passes twice, as through a tunnel, is masqueraded once.
    yield Rule(POSTROUTING, ("-j", "MARK", "--xor-mark", mark))
    ports = ("--random-fully",) if masquerade.random_fully else ()
    yield Rule(POSTROUTING, (*comment("kubernetes service traffic requiring SNAT"), "-j", "MASQUERADE", *ports))
    yield Rule(MARK_MASQ, ("-j", "MARK", "--or-mark", mark))


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
    said = comment("kubernetes forwarding rules")
    yield Rule(FORWARD, (*said, *mark_match(terms.masquerade.mark_text), "-j", "ACCEPT"))
    said = comment("kubernetes forwarding conntrack rule")
    yield Rule(FORWARD, (*said, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"))


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
