"""Renders what ``iptables-save`` and similar tools would print on a node after a sync in mode iptables or ipvs."""

from collections.abc import Iterator
from typing import NamedTuple

from knft_compat.ipvs.chains import EnsureChains
from knft_compat.ipvs.device import BindAddresses
from knft_compat.ipvs.kubelet import kubelet_jumps, kubelet_rules
from knft_compat.ipvs.names import MARK_DROP
from knft_compat.ipvs.servers import VirtualServers
from knft_compat.ipvs.sets import FilledSets
from knft_compat.jumps import EnsureJumps
from knft_compat.rules import RestoreInput, Rule, TableInput
from knft_compat.sync_output import SyncOutput

_BUILT_IN_CHAINS = {"nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), "filter": ("INPUT", "FORWARD", "OUTPUT")}


class SimulatedOutput(NamedTuple):
    """The output of ``iptables-save``, ``ipset save`` and ``ipvsadm -Sn``, and the networks on kube-ipvs0."""

    rules: str
    sets: str = ""
    servers: str = ""
    bound_addresses: tuple[str, ...] = ()


def captures_after_first_sync(output: SyncOutput) -> SimulatedOutput:
    """Return what the tools print after the first sync on a node that has only the kubelet's rules."""
    lines: dict[type, list[str]] = {
        kind: [line for part in output.parts if isinstance(part, kind) for line in part.text()]
        for kind in (FilledSets, VirtualServers)
    }
    bound = (network for part in output.parts if isinstance(part, BindAddresses) for network in part.networks)
    return SimulatedOutput(
        _text(_iptables_save_lines(output)), _text(lines[FilledSets]), _text(lines[VirtualServers]), tuple(bound)
    )


def _text(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _iptables_save_lines(output: SyncOutput) -> Iterator[str]:
    parts = (*output.parts, *_kubelet_parts(output))
    jumps = [jump for part in parts if isinstance(part, EnsureJumps) for jump in part.jumps]
    restored: dict[str, list[TableInput]] = {}
    for part in parts:
        if isinstance(part, RestoreInput):
            for table in part.tables:
                restored.setdefault(table.name, []).append(table)
    for name, tables in restored.items():
        yield f"*{name}"
        yield from (f":{chain} ACCEPT [0:0]" for chain in _BUILT_IN_CHAINS[name])
        chains = [chain for table in tables for chain in table.chains]
        targets = [jump.target for jump in jumps if jump.table == name]
        yield from (f":{chain} - [0:0]" for chain in dict.fromkeys((*chains, *targets)))
        # Each jump is inserted at the top of its chain, so the last one comes first.
        yield from (str(Rule(jump.source, jump.arguments)) for jump in reversed(jumps) if jump.table == name)
        yield from (str(line) for table in tables for line in table.lines)
        yield "COMMIT"


def _kubelet_parts(output: SyncOutput) -> Iterator[EnsureJumps | RestoreInput]:
    """Yield the kubelet's parts, if kube-proxy's rules jump to its chain."""
    created = (chain.name for part in output.parts if isinstance(part, EnsureChains) for chain in part.chains)
    if MARK_DROP in created:
        yield kubelet_jumps(output.family)
        yield kubelet_rules(output.family)
