"""kube-proxy's iptables mode: the input of ``iptables-restore`` and the commands around it.

docs/behaviour/iptables.md describes the rules.
"""

from knft_compat.iptables.cleanup import cleanup
from knft_compat.iptables.existing import ExistingRules, read_existing_rules
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.sync import sync

__all__ = ["ExistingRules", "Settings", "cleanup", "read_existing_rules", "sync"]
