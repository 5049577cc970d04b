"""The cleanup of the IPVS mode (docs/behaviour/ipvs.md#cleanup)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.families import Family
from knft_compat.ipvs.chains import JUMPS, RemoveChains, chains_to_delete
from knft_compat.ipvs.device import RemoveDevice
from knft_compat.ipvs.preconditions import LoadModule
from knft_compat.ipvs.rule_versions import FEATURES
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.settings import Settings
from knft_compat.jumps import RemoveJumps
from knft_compat.sync_input import SyncInput
from knft_compat.sync_output import SyncOutput


class FlushServers(Struct, frozen=True, tag="ipvsadm-flush"):
    """Deletes all virtual servers of both families, including those of other programs."""

    tool = ("ipvsadm", "--restore")

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield "-C"


class DestroySets(Struct, frozen=True, tag="ipset-destroyed"):
    """Destroys sets; a missing set is no error."""

    names: tuple[str, ...]
    tool = ("sh",)
    programs = ("ipset",)

    def text(self) -> Iterator[str]:
        """Yield one command for each set."""
        for name in self.names:
            yield f"ipset -exist destroy {name}"


def cleanup(sync_input: SyncInput, settings: Settings) -> SyncOutput:
    """Return the output of a cleanup.

    kube-proxy flushes IPVS and deletes its device once for both families; here the output of each family does so, with
    the same result. kube-proxy's cleanup uses the IPv4 names of sets only, so the IPv6 sets stay.
    """
    features, family = FEATURES[settings.rule_version], sync_input.family
    names = tuple(name for name in SETS if name not in features.missing_sets)
    return SyncOutput(
        "ipvs",
        family,
        (
            *([LoadModule()] if features.cleanup_loads_module else []),
            FlushServers(),
            RemoveDevice(),
            RemoveJumps(family, JUMPS[settings.rule_version]),
            RemoveChains(family, chains_to_delete(settings.rule_version)),
            DestroySets(names if family is Family.IPV4 else ()),
        ),
    )
