"""Taking over a node from kube-proxy: ``knft cleanup --kube-proxy``, and warnings at the start of ``knft run``."""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

import click

from knft.cli.leftovers import Node
from knft.errors import KernelError
from knft.kernel import ipvs, xtables
from knft.kernel.privileges import end_with_parent
from knft.kernel.probe import require_privilege
from knft.kernel.process import LibraryProcess
from knft.kernel.table import KernelTable
from knft.kernel.tables import table_flags
from knft.takeover.names import DEVICE, TABLES, Mode
from knft.takeover.words import counted, found_chains, removed_chains, warning

log = logging.getLogger("knft")

LOOK_SECONDS = 10.0
"""How long each program may take at the start of ``knft run``."""
RELEASE_SECONDS = 5.0
"""How long deleted rules may keep ipsets: the kernel frees those of iptables-nft some time after the transaction."""
_NAMED = 3
"""So many virtual servers that stay are named; more are only counted."""


def warn_of_leftovers() -> None:
    """Log one line for each mode of which something is left, and one for what cannot be read; never raise for it."""

    def report(error: KernelError) -> None:
        log.warning("leftovers of kube-proxy cannot all be looked for: %s", error)

    node = Node(report, LOOK_SECONDS)
    for mode in Mode:
        try:
            found = _look(node, mode)
        except KernelError as error:
            report(error)
            continue
        if found:
            log.warning("%s", warning(mode, found))


def warn_beside() -> int:
    """Have that done by a process of its own, which nobody has to wait for; return its number.

    To be called while there is one thread and before capabilities are given up: iptables-legacy-save needs CAP_NET_RAW.
    """
    process = os.fork()
    if process:
        return process
    try:
        end_with_parent()
        warn_of_leftovers()
    except BaseException:
        log.exception("looking for leftovers of kube-proxy failed unexpectedly; please report this")
    finally:
        os._exit(0)


def _look(node: Node, mode: Mode) -> list[str]:
    if mode is Mode.NFTABLES:
        there = table_flags()
        return [" ".join(table) for table in TABLES if table in there]
    return [*_found_chains(node, mode), *(_found_ipvs(node) if mode is Mode.IPVS else ())]


def _found_chains(node: Node, mode: Mode) -> Iterator[str]:
    for backend, plan in node.chains({mode}):
        if plan.restore:
            yield found_chains(backend.name, plan)


def _found_ipvs(node: Node) -> Iterator[str]:
    if sets := node.sets(()).destroy:
        yield counted(len(sets), "ipset")
    if node.servers is not None and node.servers.remove:
        yield counted(len(node.servers.remove), "virtual server")
    if node.has_device:
        yield f"the device {DEVICE}"


def remove_leftovers(word: str) -> None:
    """Remove what kube-proxy left in the mode of that word, or of ``all``, and say what was there.

    What fails is said at once and does not stop the rest; at the end it is a KernelError.
    """
    require_privilege()
    _Cleanup(frozenset(Mode) if word == "all" else frozenset({Mode(word)})).run()


class _Cleanup:
    """One cleanup: virtual servers, then rules, then the sets that rules named, then tables."""

    def __init__(self, modes: Collection[Mode]) -> None:
        self._modes = modes
        self._failures = 0
        self._node = Node(self._fail, xtables.CHANGE_SECONDS)

    def run(self) -> None:
        """Remove; raise KernelError at the end where something could not be removed."""
        if Mode.IPVS in self._modes:
            self._remove_servers()
            self._remove_device()
        if self._modes != {Mode.NFTABLES}:
            self._remove_chains()
        if Mode.IPVS in self._modes:
            self._remove_sets()
        if Mode.NFTABLES in self._modes:
            self._remove_tables()
        if self._failures:
            msg = f"kube-proxy's leftovers are not all gone: {counted(self._failures, 'failure')}, see above"
            raise KernelError(msg)

    def _fail(self, error: KernelError) -> None:
        self._failures += 1
        click.echo(f"knft: {error}", err=True)

    def _try(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except KernelError as error:
            self._fail(error)
            return False
        return True

    def _remove_servers(self) -> None:
        plan = self._node.servers
        if plan is None:
            click.echo("virtual servers: this kernel has no IPVS loaded, skipped")
            return
        removed = [
            self._try(partial(ipvs.delete_server, str(server.address), server.protocol, server.port))
            for server in plan.remove
        ]
        click.echo(f"virtual servers: {sum(removed)} removed" if removed else "virtual servers: none was there")
        if plan.keep:
            named = ", ".join(map(str, plan.keep[:_NAMED])) + (", ..." if plan.keep[_NAMED:] else "")
            click.echo(f"virtual servers: {len(plan.keep)} not known to be kube-proxy's stay: {named}")

    def _remove_device(self) -> None:
        device = self._node.device
        if device is None:
            click.echo(f"device {DEVICE}: was not there")
        elif not self._node.has_device:
            click.echo(f"device {DEVICE}: stays, as it is not kube-proxy's but of kind {device.kind or 'unknown'}")
        elif self._try(partial(ipvs.delete_device, DEVICE)):
            click.echo(f"device {DEVICE}: removed")

    def _remove_chains(self) -> None:
        plans = self._node.chains(self._modes)
        if not plans and not self._failures:
            click.echo("iptables: not installed, skipped")
        for (backend, plan), (_, saved) in zip(plans, self._node.saved, strict=True):
            for table in saved.unreadable:
                click.echo(f"{backend.name}: table {table} has rules that only nft can show; it is left as it is")
            if not plan.restore or self._try(partial(xtables.restore, backend, plan.restore)):
                click.echo(removed_chains(backend.name, plan))
            if plan.shared:
                kept = counted(plan.shared, "chain")
                click.echo(f"{backend.name}: {kept} that another mode of kube-proxy makes too and still needs: left")
            for chain in plan.pinned:
                click.echo(f"{backend.name}: {chain} stays, as a chain that is not kube-proxy's leads to it")

    def _remove_sets(self) -> None:
        if self._node.listed_sets is None:
            click.echo("ipsets: this machine has no ipset, skipped")
            return
        in_use = frozenset().union(*(plan.sets_in_use for _, plan in self._node.chains(self._modes)))
        plan = self._node.sets(in_use)
        deadline = time.monotonic() + RELEASE_SECONDS
        removed = [self._try(partial(xtables.destroy_set, name, deadline)) for name in plan.destroy]
        click.echo(f"ipsets: {sum(removed)} removed" if removed else "ipsets: none was there")
        for name in plan.keep:
            click.echo(f"ipset {name}: stays, as a rule that is not kube-proxy's names it")

    def _remove_tables(self) -> None:
        library = LibraryProcess()
        for family, name in TABLES:
            table = KernelTable(library, family, name)
            try:
                removed = table.remove()
            except KernelError as error:
                self._fail(error)
            else:
                click.echo(f"table {family} {name}: {'removed' if removed else 'was not there'}")
