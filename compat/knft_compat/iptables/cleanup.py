"""What removes the mode's leftovers (D.10)."""

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model.names import Family
from knft_compat.cluster import Cluster
from knft_compat.iptables.jump_table import JUMPS
from knft_compat.iptables.names import CANARY, EXTERNAL_SERVICES, NODE_PORTS
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.stale import made_chains, stale_chains
from knft_compat.jumps import RemoveJumps
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.page import Page
from knft_compat.rules import PROGRAMS, WAIT, Deletion, RestoreFilter, RestoreNat, TableInput

_NAT = (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQ, CANARY)
_FILTER = (SERVICES, EXTERNAL_SERVICES, FORWARD, NODE_PORTS, PROXY_FIREWALL, CANARY)


class RemoveCanary(Struct, frozen=True, tag="canary-removed"):
    """The end of the chain whose absence tells kube-proxy that others have flushed its rules."""

    family: Family
    table: str = "mangle"
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command, which may well find no such chain."""
        words = (PROGRAMS[self.family], *WAIT, "-X", CANARY, "-t", self.table)
        yield f"{shlex.join(words)} 2>/dev/null || true"


def cleanup(cluster: Cluster, settings: Settings) -> Page:
    """Return what removes the mode's leftovers; the kubelet's chain and the jumps to it stay.

    kube-proxy removes the chains that ``iptables-save`` shows. Where that was not asked, these are all that a sync of
    the cluster makes: a line for a chain makes it where it is missing, and the next one deletes it.
    """
    family = cluster.family
    in_nat: tuple[str, ...] = (*_NAT, *made_chains(cluster.ports))
    in_filter: tuple[str, ...] = _FILTER
    if settings.existing is not None:
        in_nat, in_filter = (settings.existing.chains(family, table) for table in ("nat", "filter"))
    parts = (
        RemoveJumps(family, JUMPS),
        RestoreNat(family, _removal("nat", (*_those(_NAT, in_nat), *stale_chains(in_nat, active=())))),
        RestoreFilter(family, _removal("filter", _those(_FILTER, in_filter))),
        RemoveCanary(family),
    )
    return Page("iptables", family, parts)


def _those(chains: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    found = frozenset(there)
    return tuple(chain for chain in chains if chain in found)


def _removal(table: str, chains: tuple[str, ...]) -> tuple[TableInput]:
    # All are emptied before the first is deleted, so that none leads to another any more.
    return (TableInput(table, chains, tuple(map(Deletion, chains))),)
