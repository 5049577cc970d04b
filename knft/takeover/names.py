"""The names that are kube-proxy's own, by mode (behaviour.md C.9, D.2, D.10, E.3, E.5).

KUBE-FIREWALL, KUBE-KUBELET-CANARY and KUBE-MARK-DROP are not here: they are the kubelet's.
"""

from enum import Enum

from knft.families import Family


class Mode(Enum):
    """A mode of kube-proxy; the value is its word on the command line."""

    IPTABLES = "iptables"
    IPVS = "ipvs"
    NFTABLES = "nftables"


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


def chain_owners(table: str, chain: str) -> frozenset[Mode]:
    """Return the modes that make a chain of this name in this table; none where it is not kube-proxy's."""
    if table == "nat" and chain.startswith(_SERVICE_CHAINS):
        return _IPTABLES
    return _CHAINS.get(table, {}).get(chain, _NO_MODES)


_LONGEST_SET_NAME = 31

NODE_PORT_SETS = {"KUBE-NODE-PORT-TCP": "tcp", "KUBE-NODE-PORT-UDP": "udp"}
"""Sets of NodePorts that hold numbers alone, and the protocol that they mean."""

FRONTEND_SETS = (
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-EXTERNAL-IP-LOCAL",
    "KUBE-LOAD-BALANCER",
    "KUBE-NODE-PORT-SCTP-HASH",
)
"""Sets whose elements are addresses, protocols and ports of virtual servers."""

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
    """Return what the IPv6 proxier calls the set ``name``; ipset's limit of 31 characters cuts it (E.3)."""
    return ("KUBE-6-" + name.removeprefix("KUBE-"))[:_LONGEST_SET_NAME]


def _of_both_families(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names) | frozenset(map(ipv6_set, names))


SETS = _of_both_families((*NODE_PORT_SETS, *FRONTEND_SETS, *_OTHER_SETS))
"""Every ipset of kube-proxy's, of both families."""

SERVER_SETS = _of_both_families((*NODE_PORT_SETS, *FRONTEND_SETS))
"""The ipsets whose elements tell which virtual servers are kube-proxy's."""

DEVICE, DEVICE_KIND = "kube-ipvs0", "dummy"
"""The link that holds the addresses of virtual servers; of another kind, it is not kube-proxy's."""

TABLE = "kube-proxy"
TABLES = tuple((family.nft, TABLE) for family in Family)
"""Family and name of the nftables tables."""
