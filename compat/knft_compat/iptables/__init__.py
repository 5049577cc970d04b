"""kube-proxy's iptables mode: what ``iptables-restore`` and the commands around it are given (behaviour.md D)."""

from knft_compat.iptables.existing import read_existing
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.sync import cleanup, sync

__all__ = ["Settings", "cleanup", "read_existing", "sync"]
