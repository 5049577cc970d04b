"""kube-proxy's IPVS mode: ipsets, virtual servers, addresses and the rules around them (behaviour.md E)."""

from knft_compat.ipvs.existing import read_addresses, read_servers
from knft_compat.ipvs.settings import Settings, Timeouts, Vintage
from knft_compat.ipvs.sync import cleanup, sync

__all__ = ["Settings", "Timeouts", "Vintage", "cleanup", "read_addresses", "read_servers", "sync"]
