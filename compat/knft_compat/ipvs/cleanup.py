"""The cleanup of the IPVS mode (E.9)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.model.names import Family
from knft_compat.cluster import Cluster
from knft_compat.ipvs.chains import JUMPS, RemoveChains, removed
from knft_compat.ipvs.device import RemoveDevice
from knft_compat.ipvs.preconditions import LoadModule
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.settings import Settings
from knft_compat.ipvs.vintages import FEATURES
from knft_compat.jumps import RemoveJumps
from knft_compat.page import Page


class FlushServers(Struct, frozen=True, tag="ipvsadm-flush"):
    """All virtual servers go: those of both families, and those of others."""

    tool = ("ipvsadm", "--restore")

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield "-C"


class DestroySets(Struct, frozen=True, tag="ipset-destroyed"):
    """Sets that go; one that is not there is no error."""

    names: tuple[str, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each."""
        for name in self.names:
            yield f"ipset -exist destroy {name}"


def cleanup(cluster: Cluster, settings: Settings) -> Page:
    """Return what removes the mode's leftovers.

    kube-proxy flushes IPVS and deletes its device once, for both families; each page does it, which comes to the same.
    It knows its sets by their IPv4 names alone, so those of IPv6 stay.
    """
    features, family = FEATURES[settings.vintage], cluster.family
    names = tuple(name for name in SETS if name not in features.without_sets)
    return Page(
        "ipvs",
        family,
        (
            *([LoadModule()] if features.cleanup_loads_module else []),
            FlushServers(),
            RemoveDevice(),
            RemoveJumps(family, JUMPS[settings.vintage]),
            RemoveChains(family, removed(settings.vintage)),
            DestroySets(names if family is Family.IPV4 else ()),
        ),
    )
