"""What distinguishes the kube-proxies that the documents describe, as data (E.10).

What a document does not show is taken from the next later one that shows it. Tables of chains and rules stand beside
those of the newest, in ``chains`` and ``restore``.
"""

import enum

from msgspec import Struct

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
    hashes_ports: bool = True
    """With scheduler mh, the client's port counts as well."""
    binds_foreign: bool = False
    """It binds external addresses that another interface has, too."""
    unbinds_with_servers: bool = False
    """It deletes old virtual servers first, and takes away no other addresses than theirs."""
    says_sets: bool = True
    """Rules that look into a set bear its comment."""
    forgetting: Forgetting = Forgetting.BY_LOOKING


_OLD = Features(
    loads_modules=True,
    cleanup_loads_module=False,
    hashes_ports=False,
    binds_foreign=True,
    unbinds_with_servers=True,
    forgetting=Forgetting.AT_EACH_STEP,
)

FEATURES = {
    Vintage.V1_23: Features(
        without_sets=frozenset({"KUBE-IPVS-IPS"}),
        loads_modules=_OLD.loads_modules,
        cleanup_loads_module=_OLD.cleanup_loads_module,
        hashes_ports=_OLD.hashes_ports,
        binds_foreign=_OLD.binds_foreign,
        unbinds_with_servers=_OLD.unbinds_with_servers,
        says_sets=False,
        forgetting=_OLD.forgetting,
    ),
    Vintage.V1_26: _OLD,
    Vintage.V1_29: Features(forgetting=Forgetting.AFTER_CHANGES),
    Vintage.NEWEST: Features(),
}
