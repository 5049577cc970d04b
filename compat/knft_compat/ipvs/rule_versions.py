"""The differences between the rule versions of kube-proxy's IPVS mode, as data (docs/behaviour/ipvs.md#versions).

The versions come from descriptions of kube-proxy (docs/verification.md#original-documents). What a description omits is
taken from that of the next later version. ``chains`` and ``restore`` have the chains and rules of each version. All
versions select endpoints as the newest kube-proxy does, since endpoints are selected before a mode runs.
"""

import enum

from msgspec import Struct
from msgspec.structs import replace

from knft_compat.ipvs.names import BOUND_IPS
from knft_compat.ipvs.settings import RuleVersion


class ConntrackCleanup(enum.Enum):
    """When kube-proxy deletes conntrack entries of UDP Services (docs/behaviour/conntrack.md)."""

    EVERY_SYNC = "inline"
    """Entries of NodePorts at every sync.

    Entries of a Service's addresses when it lost a port or got its first endpoint.
    """
    ON_CHANGE = "after changes"
    """Entries of a Service's addresses and NodePorts, when it lost a port or an endpoint, or got its first endpoint."""
    RECONCILER = "reconciler"
    """A reconciler compares the kernel's table with the Services; this package does not know that table."""


class Features(Struct, frozen=True):
    """Behaviour of one version of kube-proxy's IPVS mode that differs in others."""

    missing_sets: frozenset[str] = frozenset()
    """Names of ipsets that this version of kube-proxy does not have."""
    loads_modules: bool = False
    """At its start kube-proxy loads kernel modules; other versions test the scheduler."""
    cleanup_loads_module: bool = True
    """kube-proxy's cleanup loads the module ip_vs first."""
    supports_ip_mode: bool = True
    """Load balancer addresses with ipMode Proxy get no virtual server; older APIs have no ipMode."""
    mh_hashes_ports: bool = True
    """Scheduler mh hashes the client's port too."""
    binds_addresses_of_other_interfaces: bool = False
    """kube-proxy binds external addresses to kube-ipvs0 even if another interface has them."""
    skips_node_ports_on_bound_addresses: bool = False
    """kube-proxy serves no NodePorts on addresses of kube-ipvs0, unless NodePort addresses are configured."""
    unbinds_only_server_addresses: bool = False
    """kube-proxy deletes stale virtual servers first; a stale address stays on kube-ipvs0 if none of them had it."""
    comments_set_rules: bool = True
    """Rules that match an ipset have the ipset's comment."""
    conntrack_cleanup: ConntrackCleanup = ConntrackCleanup.RECONCILER


_OLD = Features(
    loads_modules=True,
    cleanup_loads_module=False,
    supports_ip_mode=False,
    mh_hashes_ports=False,
    binds_addresses_of_other_interfaces=True,
    skips_node_ports_on_bound_addresses=True,
    unbinds_only_server_addresses=True,
    conntrack_cleanup=ConntrackCleanup.EVERY_SYNC,
)

FEATURES = {
    RuleVersion.DOCUMENT_003: replace(_OLD, missing_sets=frozenset({BOUND_IPS}), comments_set_rules=False),
    RuleVersion.DOCUMENT_002: _OLD,
    RuleVersion.DOCUMENT_004: Features(conntrack_cleanup=ConntrackCleanup.ON_CHANGE),
    RuleVersion.NEWEST: Features(),
}


def supports_ip_mode(rule_version: RuleVersion) -> bool:
    """Return whether a version evaluates ``ipMode`` of load balancer addresses."""
    return FEATURES[rule_version].supports_ip_mode
