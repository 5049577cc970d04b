"""The cleanup of the iptables mode (docs/behaviour/iptables.md#cleanup)."""

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.families import Family
from knft_compat.iptables.jump_table import JUMPS
from knft_compat.iptables.names import CANARY, EXTERNAL_SERVICES, NODE_PORTS
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.stale import chains_of_ports, stale_chains
from knft_compat.jumps import RemoveJumps
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import PROGRAMS, WAIT, ChainDeletion, RestoreFilterInput, RestoreNatInput, TableInput
from knft_compat.sync_input import SyncInput
from knft_compat.sync_output import SyncOutput

_NAT = (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQ, CANARY)
_FILTER = (SERVICES, EXTERNAL_SERVICES, FORWARD, NODE_PORTS, PROXY_FIREWALL, CANARY)


class RemoveCanary(Struct, frozen=True, tag="canary-removed"):
    """Deletes the canary chain, whose absence tells kube-proxy that another program flushed its rules."""

    family: Family
    table: str = "mangle"
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command; a missing chain is no error."""
        arguments = (PROGRAMS[self.family], *WAIT, "-X", CANARY, "-t", self.table)
        yield f"{shlex.join(arguments)} 2>/dev/null || true"


def cleanup(sync_input: SyncInput, settings: Settings) -> SyncOutput:
    """Return the output of a cleanup; the kubelet's chain and the jumps to it stay.

    kube-proxy deletes the chains that ``iptables-save`` shows. If that output is unknown, this deletes all chains that
    a sync of the cluster creates: declaring a chain creates it if it is missing, so that deleting it succeeds.
    """
    family = sync_input.family
    in_nat: tuple[str, ...] = (*_NAT, *chains_of_ports(sync_input.ports))
    in_filter: tuple[str, ...] = _FILTER
    if settings.existing is not None:
        in_nat, in_filter = (settings.existing.chains(family, table) for table in ("nat", "filter"))
    parts = (
        RemoveJumps(family, JUMPS),
        RestoreNatInput(family, _delete_chains("nat", (*_present(_NAT, in_nat), *stale_chains(in_nat, active=())))),
        RestoreFilterInput(family, _delete_chains("filter", _present(_FILTER, in_filter))),
        RemoveCanary(family),
    )
    return SyncOutput("iptables", family, parts)


def _present(chains: Iterable[str], existing: Iterable[str]) -> tuple[str, ...]:
    found = frozenset(existing)
    return tuple(chain for chain in chains if chain in found)


def _delete_chains(table: str, chains: tuple[str, ...]) -> tuple[TableInput]:
    # Flush all chains before deleting the first one: a chain with a jump to it cannot be deleted.
    return (TableInput(table, chains, tuple(map(ChainDeletion, chains))),)
