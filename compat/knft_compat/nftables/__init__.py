"""kube-proxy's nftables mode, as of release 1.36: its table after a first sync, as ``nft -j list ruleset`` prints it.

The source is kube-proxy's own, pkg/proxy/nftables/proxier.go of k8s.io/kubernetes v1.36.3: ``setupNFTables`` has the
rules of static_rules.py, ``syncProxyRules`` those of service_rules.py. tests/upstream/test_nftables.py compares the
rules with the expectations of kube-proxy's unit tests.
"""

from knft_compat.nftables.listing import list_table
from knft_compat.nftables.settings import Settings

__all__ = ["Settings", "list_table"]
