"""kube-proxy's iptables mode: what ``iptables-restore`` and the commands around it are given (behaviour.md D)."""

from knft_compat.iptables.cleanup import cleanup
from knft_compat.iptables.existing import Existing, read_existing
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.sync import sync

__all__ = ["Existing", "Settings", "cleanup", "read_existing", "sync"]
