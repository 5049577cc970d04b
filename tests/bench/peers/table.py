"""kube-proxy's table without Services, in nftables mode (docs/behaviour/nftables.md#versions)."""

from collections.abc import Iterator

from tests.bench.cluster import CLUSTER_CIDR, NODE_IP, SERVICE_CIDR
from tests.bench.peers.layout import MARK

TABLE = "ip kube-proxy"
FRONTEND = "ip daddr . meta l4proto . th dport"
_SERVICE_KEY = "ipv4_addr . inet_proto . inet_service"
_NODEPORT_KEY = "inet_proto . inet_service"

_BASE_CHAINS = (
    ("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    ("filter-output-pre-dnat", "filter", "output", -110),
    ("filter-input", "filter", "input", 0),
    ("filter-forward", "filter", "forward", 0),
    ("filter-output", "filter", "output", 0),
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
)
_JUMPS = (
    ("filter-input", "ct state new jump nodeport-endpoints-check"),
    ("filter-input", "ct state new jump service-endpoints-check"),
    ("filter-forward", "ct state new jump service-endpoints-check"),
    ("filter-output", "ct state new jump service-endpoints-check"),
    ("filter-prerouting-pre-dnat", "ct state new jump firewall-check"),
    ("filter-output-pre-dnat", "ct state new jump firewall-check"),
    ("nat-output", "jump services"),
    ("nat-prerouting", "jump services"),
    ("nat-postrouting", "jump masquerading"),
    ("filter-forward", "ct state new jump cluster-ips-check"),
    ("filter-output", "ct state new jump cluster-ips-check"),
)
_CONTAINERS = (
    ("set", "cluster-ips", "ipv4_addr", "Active ClusterIPs"),
    ("set", "nodeport-ips", "ipv4_addr", "IPs that accept NodePort traffic"),
    ("map", "no-endpoint-services", f"{_SERVICE_KEY} : verdict", "vmap for services with no endpoints"),
    ("map", "no-endpoint-nodeports", f"{_NODEPORT_KEY} : verdict", "vmap for nodeports with no endpoints"),
    ("map", "firewall-ips", f"{_SERVICE_KEY} : verdict", "destinations that are subject to LoadBalancerSourceRanges"),
    ("map", "service-ips", f"{_SERVICE_KEY} : verdict", "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
    ("map", "service-nodeports", f"{_NODEPORT_KEY} : verdict", "NodePort traffic"),
)
_HAIRPIN_SET = ("set", "hairpin-connections", f"ipv4_addr . {_SERVICE_KEY}", "service hairpin connections")
_PLAIN_CHAINS = (
    "nodeport-endpoints-check", "service-endpoints-check", "firewall-check", "cluster-ips-check", "services",
    "masquerading", "reject-chain",
)  # fmt: skip
_RULES = (
    ("cluster-ips-check", 'ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"'),
    ("cluster-ips-check", f'ip daddr {{ {SERVICE_CIDR} }} drop comment "Drop traffic to unallocated ClusterIPs"'),
    ("reject-chain", "reject"),
    ("service-endpoints-check", f"{FRONTEND} vmap @no-endpoint-services"),
    ("nodeport-endpoints-check", "ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports"),
    ("firewall-check", f"{FRONTEND} vmap @firewall-ips"),
)
_SERVICES_RULES = (
    ("services", f"{FRONTEND} vmap @service-ips"),
    ("services", "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports"),
)
_OUTSIDE_COMMENT = 'comment "masquerade clusterIP traffic from outside cluster"'
_MARKED_BY_CHAIN = (
    ("mark-for-masquerade", f"mark set mark or {MARK}"),
    ("masquerading", f"mark and {MARK} == 0 return"),
    ("masquerading", f"mark set mark xor {MARK}"),
    ("masquerading", "masquerade fully-random"),
)
_MARKED_INLINE = (
    ("masquerading", f"mark and {MARK} != 0 mark set mark xor {MARK} masquerade fully-random"),
    ("masquerading",
     "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random"),
    ("services", f"ip daddr @cluster-ips ip saddr != {CLUSTER_CIDR} mark set mark or {MARK} {_OUTSIDE_COMMENT}"),
)  # fmt: skip


def setup(*, marks_by_chain: bool) -> Iterator[str]:
    """Yield the lines of the table without Services. Up to kube-proxy 1.35 a chain sets the masquerade mark."""
    yield f'add table {TABLE} {{ comment "rules for kube-proxy" ; }}'
    for name, kind, hook, priority in _BASE_CHAINS:
        yield f"add chain {TABLE} {name} {{ type {kind} hook {hook} priority {priority} ; }}"
    for name in (*_PLAIN_CHAINS, *(("mark-for-masquerade",) if marks_by_chain else ())):
        yield f"add chain {TABLE} {name}"
    for kind, name, types, comment in (*_CONTAINERS, *(() if marks_by_chain else (_HAIRPIN_SET,))):
        yield f'add {kind} {TABLE} {name} {{ type {types} ; comment "{comment}" ; }}'
    yield f"add element {TABLE} nodeport-ips {{ {NODE_IP} }}"
    marking = _MARKED_BY_CHAIN if marks_by_chain else _MARKED_INLINE
    for chain, rule in (*_JUMPS, *_RULES, *marking, *_SERVICES_RULES):
        yield f"add rule {TABLE} {chain} {rule}"
