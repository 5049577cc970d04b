"""What distinguishes the kube-proxies that the documents describe, as data (E.10).

What a document does not show is taken from the next later one that shows it. Tables of chains and rules stand beside
those of the newest, in ``chains`` and ``restore``. Which endpoints serve is decided before any mode sees them, and so
as the newest kube-proxy does, whatever the vintage.
"""

import enum

from msgspec import Struct
from msgspec.structs import replace

from knft_compat.ipvs.names import BOUND_IPS
from knft_compat.ipvs.settings import Vintage


class Forgetting(enum.Enum):
    """How connections of UDP Services are made to be forgotten (F)."""

    AT_EACH_STEP = "inline"
    """By address, where a Service lost its port or won endpoints; by NodePort, on each sync."""
    AFTER_CHANGES = "after changes"
    """By address and NodePort, where a Service lost its port, or won or lost endpoints."""
    BY_LOOKING = "reconciler"
    """One by one, after a look at the kernel's own table, which nothing here knows."""


class Features(Struct, frozen=True):
    """What one kube-proxy does and another does not."""

    without_sets: frozenset[str] = frozenset()
    """Sets that it does not have yet."""
    loads_modules: bool = False
    """It looks for kernel modules at its start, where others try the scheduler out."""
    cleanup_loads_module: bool = True
    """Its cleanup loads ip_vs first."""
    knows_ip_modes: bool = True
    """A load balancer's address may be a proxy's, which gets no virtual server; older APIs have no such field."""
    hashes_ports: bool = True
    """With scheduler mh, the client's port counts as well."""
    binds_foreign: bool = False
    """It binds external addresses that another interface has, too."""
    passes_over_bound: bool = False
    """It serves no NodePorts at an address that its own device has as well, unless networks choose the addresses."""
    unbinds_with_servers: bool = False
    """It deletes old virtual servers first, and takes away no other addresses than theirs."""
    says_sets: bool = True
    """Rules that look into a set bear its comment."""
    forgetting: Forgetting = Forgetting.BY_LOOKING


_OLD = Features(
    loads_modules=True,
    cleanup_loads_module=False,
    knows_ip_modes=False,
    hashes_ports=False,
    binds_foreign=True,
    passes_over_bound=True,
    unbinds_with_servers=True,
    forgetting=Forgetting.AT_EACH_STEP,
)

FEATURES = {
    Vintage.V1_23: replace(_OLD, without_sets=frozenset({BOUND_IPS}), says_sets=False),
    Vintage.V1_26: _OLD,
    Vintage.V1_29: Features(forgetting=Forgetting.AFTER_CHANGES),
    Vintage.NEWEST: Features(),
}


def knows_ip_modes(vintage: Vintage) -> bool:
    """Tell whether ``ipMode`` of a load balancer's address means anything to a vintage."""
    return FEATURES[vintage].knows_ip_modes
