"""kube-proxy's IPVS mode: ipsets, virtual servers, addresses and iptables rules (docs/behaviour/ipvs.md).

``claims`` finds the addresses and ports of Services. ``entries`` (ipsets), ``servers`` (IPVS), ``device`` (addresses)
and ``restore`` (iptables) render them. ``real_servers`` and ``conntrack`` compare them with the previous state.
``sync`` and ``cleanup`` put the parts in order. ``rule_versions`` has the differences between versions of kube-proxy.
"""

from knft_compat.ipvs.cleanup import cleanup
from knft_compat.ipvs.existing import read_addresses, read_servers
from knft_compat.ipvs.rule_versions import supports_ip_mode
from knft_compat.ipvs.settings import DEPRECATED_NAMES, RuleVersion, Settings, Timeouts
from knft_compat.ipvs.sync import sync

__all__ = [
    "DEPRECATED_NAMES",
    "RuleVersion",
    "Settings",
    "Timeouts",
    "cleanup",
    "read_addresses",
    "read_servers",
    "supports_ip_mode",
    "sync",
]
