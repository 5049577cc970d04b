"""kube-proxy's IPVS mode: ipsets, virtual servers, addresses and the rules around them (behaviour.md E).

``claims`` finds where Services are served; ``entries`` (ipsets), ``servers`` (IPVS), ``device`` (addresses) and
``restore`` (iptables) write that down, ``terminating`` and ``conntrack`` look at what was before; ``sync`` and
``cleanup`` put the parts in order. ``vintages`` holds what differs between kube-proxies.
"""

from knft_compat.ipvs.cleanup import cleanup
from knft_compat.ipvs.existing import read_addresses, read_servers
from knft_compat.ipvs.settings import Settings, Timeouts, Vintage
from knft_compat.ipvs.sync import sync

__all__ = ["Settings", "Timeouts", "Vintage", "cleanup", "read_addresses", "read_servers", "sync"]
