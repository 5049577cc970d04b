"""What a node would say of itself after a page was carried out on it: captures of nodes that do not exist."""

from collections.abc import Iterator
from typing import NamedTuple

from knft_compat.ipvs.device import BindAddresses
from knft_compat.ipvs.servers import VirtualServers
from knft_compat.ipvs.sets import FilledSets
from knft_compat.jumps import EnsureJumps
from knft_compat.page import Page
from knft_compat.rules import Restore, Rule, TableInput

_BUILT_IN = {"nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), "filter": ("INPUT", "FORWARD", "OUTPUT")}


class Captures(NamedTuple):
    """The texts of ``iptables-save``, ``ipset save`` and ``ipvsadm -Sn``, and the networks on kube-proxy's device."""

    rules: str
    sets: str = ""
    servers: str = ""
    bound: tuple[str, ...] = ()


def captures(page: Page) -> Captures:
    """Return what is in force after a first sync on a node that had nothing."""
    lines: dict[type, list[str]] = {
        kind: [line for part in page.parts if isinstance(part, kind) for line in part.text()]
        for kind in (FilledSets, VirtualServers)
    }
    bound = (network for part in page.parts if isinstance(part, BindAddresses) for network in part.networks)
    return Captures(_text(_tables(page)), _text(lines[FilledSets]), _text(lines[VirtualServers]), tuple(bound))


def _text(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _tables(page: Page) -> Iterator[str]:
    jumps = [jump for part in page.parts if isinstance(part, EnsureJumps) for jump in part.jumps]
    restored: dict[str, list[TableInput]] = {}
    for part in page.parts:
        if isinstance(part, Restore):
            for table in part.tables:
                restored.setdefault(table.name, []).append(table)
    for name, tables in restored.items():
        yield f"*{name}"
        yield from (f":{chain} ACCEPT [0:0]" for chain in _BUILT_IN[name])
        chains = [chain for table in tables for chain in table.chains]
        targets = [jump.target for jump in jumps if jump.table == name]
        yield from (f":{chain} - [0:0]" for chain in dict.fromkeys((*chains, *targets)))
        # Each jump is put in front of those before it.
        yield from (str(Rule(jump.source, jump.arguments)) for jump in reversed(jumps) if jump.table == name)
        yield from (str(line) for table in tables for line in table.lines)
        yield "COMMIT"
