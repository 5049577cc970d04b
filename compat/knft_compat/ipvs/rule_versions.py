"""The differences between versions of kube-proxy's IPVS mode, as data (docs/behaviour/ipvs.md#versions).

The versions come from docs/verification.md#original-documents. What a document does not show is taken from the next
later document that shows it. ``chains`` and ``restore`` have the chains and rules of each version. All versions select
endpoints as the newest kube-proxy does, since endpoints are selected before a mode runs.
"""

import enum

from msgspec import Struct
from msgspec.structs import replace

from knft_compat.ipvs.names import BOUND_IPS
from knft_compat.ipvs.settings import RuleVersion


class ConntrackCleanup(enum.Enum):
    """When kube-proxy deletes conntrack entries of UDP Services (docs/behaviour/conntrack.md)."""

    EVERY_SYNC = "inline"
    """At every sync, for NodePorts; when a Service lost a port or got its first endpoint, for its addresses."""
    ON_CHANGE = "after changes"
    """When a Service lost a port, or got its first endpoint or lost one, for its addresses and NodePorts."""
    RECONCILER = "reconciler"
    """A reconciler compares the kernel's table with the Services; this package does not know that table."""


class Features(Struct, frozen=True):
    """Behaviour that differs between versions of kube-proxy's IPVS mode."""

    missing_sets: frozenset[str] = frozenset()
    """Sets that the version does not have."""
    loads_modules: bool = False
    """At the start it loads kernel modules; other versions test the scheduler."""
    cleanup_loads_module: bool = True
    """Its cleanup loads the module ip_vs first."""
    supports_ip_mode: bool = True
    """Load balancer addresses with ipMode Proxy get no virtual server; older APIs have no ipMode."""
    mh_hashes_ports: bool = True
    """Scheduler mh hashes the client's port too."""
    binds_addresses_of_other_interfaces: bool = False
    """It binds external addresses to kube-ipvs0 even if another interface has them."""
    skips_node_ports_on_bound_addresses: bool = False
    """It serves no NodePorts on addresses of kube-ipvs0, unless NodePort addresses are configured."""
    unbinds_only_server_addresses: bool = False
    """It deletes stale virtual servers first, and removes only their addresses from kube-ipvs0."""
    comments_set_rules: bool = True
    """Rules that match a set have its comment."""
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
    RuleVersion.V1_23: replace(_OLD, missing_sets=frozenset({BOUND_IPS}), comments_set_rules=False),
    RuleVersion.V1_26: _OLD,
    RuleVersion.V1_29: Features(conntrack_cleanup=ConntrackCleanup.ON_CHANGE),
    RuleVersion.NEWEST: Features(),
}


def supports_ip_mode(rule_version: RuleVersion) -> bool:
    """Return whether a version evaluates ``ipMode`` of load balancer addresses."""
    return FEATURES[rule_version].supports_ip_mode
