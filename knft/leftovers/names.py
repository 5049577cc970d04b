"""The names of kube-proxy's objects, by mode.

See docs/behaviour/nftables.md#cleanup, docs/behaviour/iptables.md#cleanup and docs/behaviour/ipvs.md#cleanup.
KUBE-FIREWALL, KUBE-KUBELET-CANARY and KUBE-MARK-DROP belong to the kubelet and are not included.
"""

from knft.families import Family
from knft.proxy_mode import Mode

_IPTABLES, _IPVS = frozenset({Mode.IPTABLES}), frozenset({Mode.IPVS})
_BOTH_MODES = _IPTABLES | _IPVS
_CANARY = {"KUBE-PROXY-CANARY": _IPTABLES}

_CHAINS: dict[str, dict[str, frozenset[Mode]]] = {
    "nat": {
        "KUBE-SERVICES": _BOTH_MODES,
        "KUBE-POSTROUTING": _BOTH_MODES,
        "KUBE-MARK-MASQ": _BOTH_MODES,
        "KUBE-NODEPORTS": _IPTABLES,
        "KUBE-NODE-PORT": _IPVS,
        "KUBE-LOAD-BALANCER": _IPVS,
        **_CANARY,
    },
    "filter": {
        "KUBE-FORWARD": _BOTH_MODES,
        "KUBE-PROXY-FIREWALL": _BOTH_MODES,
        "KUBE-SERVICES": _IPTABLES,
        "KUBE-EXTERNAL-SERVICES": _IPTABLES,
        "KUBE-NODEPORTS": _IPTABLES,
        "KUBE-NODE-PORT": _IPVS,
        "KUBE-SOURCE-RANGES-FIREWALL": _IPVS,
        "KUBE-IPVS-FILTER": _IPVS,
        "KUBE-IPVS-OUT-FILTER": _IPVS,
        **_CANARY,
    },
    "mangle": _CANARY,
}
_SERVICE_CHAINS = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-")
_NO_MODES: frozenset[Mode] = frozenset()


def modes_of_chain(table: str, chain: str) -> frozenset[Mode]:
    """Return the modes that create a chain of this name in this table; empty if it is not a chain of kube-proxy."""
    if table == "nat" and chain.startswith(_SERVICE_CHAINS):
        return _IPTABLES
    return _CHAINS.get(table, {}).get(chain, _NO_MODES)


_LONGEST_SET_NAME = 31

NODE_PORT_SETS = {"KUBE-NODE-PORT-TCP": "tcp", "KUBE-NODE-PORT-UDP": "udp"}
"""Ipsets that hold NodePorts as numbers, with their protocol."""

FRONTEND_SETS = (
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-EXTERNAL-IP-LOCAL",
    "KUBE-LOAD-BALANCER",
    "KUBE-NODE-PORT-SCTP-HASH",
)
"""Ipsets whose elements are address, protocol and port of virtual servers."""

_OTHER_SETS = (
    "KUBE-LOOP-BACK",
    "KUBE-LOAD-BALANCER-FW",
    "KUBE-LOAD-BALANCER-LOCAL",
    "KUBE-LOAD-BALANCER-SOURCE-IP",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    "KUBE-NODE-PORT-LOCAL-TCP",
    "KUBE-NODE-PORT-LOCAL-UDP",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    "KUBE-HEALTH-CHECK-NODE-PORT",
    "KUBE-IPVS-IPS",
)


def ipv6_set(name: str) -> str:
    """Return the IPv6 name of the ipset ``name``, cut to ipset's limit of 31 characters."""
    return ("KUBE-6-" + name.removeprefix("KUBE-"))[:_LONGEST_SET_NAME]


def _of_both_families(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names) | frozenset(map(ipv6_set, names))


SETS = _of_both_families((*NODE_PORT_SETS, *FRONTEND_SETS, *_OTHER_SETS))
"""Every ipset of kube-proxy, of both families."""

SERVER_SETS = _of_both_families((*NODE_PORT_SETS, *FRONTEND_SETS))
"""The ipsets whose elements show which virtual servers are kube-proxy's."""

DEVICE, DEVICE_KIND = "kube-ipvs0", "dummy"
"""The link that holds the addresses of virtual servers. knft does not remove a link of another kind."""

TABLE = "kube-proxy"
TABLES = tuple((family.nft, TABLE) for family in Family)
"""Family and name of the nftables tables."""
