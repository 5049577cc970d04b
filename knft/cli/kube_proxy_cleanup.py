"""``knft cleanup --kube-proxy``: removes kube-proxy's leftovers from this node."""

import time
from collections.abc import Callable, Collection
from functools import partial

from knft.app.leftovers import KubeProxyLeftovers
from knft.cli.output import Output
from knft.cli.table_removal import WOULD_BE_REMOVED, remove_table
from knft.counts import format_count
from knft.errors import KernelError
from knft.families import Family
from knft.kernel import ipvs, xtables
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess
from knft.leftovers.messages import describe_each_removed, describe_removed_chains
from knft.leftovers.names import DEVICE
from knft.leftovers.names import TABLE as KUBE_PROXY_TABLE
from knft.proxy_mode import Mode

IPSET_RELEASE_SECONDS = 5.0
"""How long deleted rules may keep ipsets in use: the kernel frees rules of iptables-nft after the transaction."""
_MAX_NAMED_SERVERS = 3
"""How many of the virtual servers that stay are named."""


def remove_leftovers(mode_name: str, output: Output, *, dry_run: bool = False) -> None:
    """Remove kube-proxy's leftovers of one mode, or of "all", and print what was removed.

    With ``dry_run``, remove nothing, and print each object that would be removed. After a failure, print it and
    continue with the rest; raise KernelError at the end.
    """
    require_privilege()
    modes = frozenset(Mode) if mode_name == "all" else frozenset({Mode(mode_name)})
    _Cleanup(modes, output, dry_run=dry_run).run()


class _Cleanup:
    """Removes virtual servers, then rules, then the ipsets that the rules used, then nftables tables."""

    def __init__(self, modes: Collection[Mode], output: Output, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._removed = WOULD_BE_REMOVED if dry_run else "removed"
        self._modes = modes
        self._output = output
        self._failures = 0
        self._leftovers = KubeProxyLeftovers(self._fail, xtables.CHANGE_SECONDS)

    def run(self) -> None:
        """Remove all; raise KernelError at the end if anything failed."""
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
            failures = format_count(self._failures, "failure")
            verb = "list" if self._dry_run else "remove"
            msg = f"cannot {verb} all of kube-proxy's leftovers: {failures}, see above; run the command again"
            raise KernelError(msg)

    def _fail(self, error: KernelError) -> None:
        self._failures += 1
        self._output.print(f"knft: {error}", err=True)

    def _try(self, action: Callable[[], object], *objects: str) -> bool:
        """Remove objects; return whether that succeeded. With ``dry_run``, print them."""
        if self._dry_run:
            for each in objects:
                self._output.print(f"{each}: {self._removed}")
            return True
        try:
            action()
        except KernelError as error:
            self._fail(error)
            return False
        return True

    def _remove_servers(self) -> None:
        plan = self._leftovers.servers_to_remove
        if plan is None:
            self._output.print("virtual servers: skipped, IPVS is not loaded")
            return
        removed = [
            self._try(
                partial(ipvs.delete_server, str(server.address), server.protocol, server.port),
                f"virtual server {server}",
            )
            for server in plan.remove
        ]
        self._output.print(
            f"virtual servers: {sum(removed)} {self._removed}" if removed else "virtual servers: none found"
        )
        if plan.keep:
            named = ", ".join(map(str, plan.keep[:_MAX_NAMED_SERVERS])) + (
                ", ..." if plan.keep[_MAX_NAMED_SERVERS:] else ""
            )
            self._output.print(f"virtual servers: {len(plan.keep)} kept that are not known to be kube-proxy's: {named}")

    def _remove_device(self) -> None:
        device = self._leftovers.kube_ipvs_link
        if device is None:
            self._output.print(f"device {DEVICE}: not found")
        elif not self._leftovers.has_ipvs_device:
            self._output.print(
                f"device {DEVICE}: kept, its kind is {device.kind or 'unknown'}, so it is not kube-proxy's"
            )
        elif self._try(partial(ipvs.delete_device, DEVICE)):
            self._output.print(f"device {DEVICE}: {self._removed}")

    def _remove_chains(self) -> None:
        plans = self._leftovers.chains_to_remove(self._modes)
        if not plans and not self._failures:
            self._output.print("iptables: skipped, not installed")
        for (backend, plan), (_, saved) in zip(plans, self._leftovers.saved_rules, strict=True):
            for table in saved.unreadable_tables:
                self._output.print(f"{backend.name}: kept table {table}, since it has rules that only nft can show")
            restore = partial(xtables.restore, backend, plan.restore_input)
            if not plan.restore_input or self._try(restore, *describe_each_removed(backend.name, plan)):
                self._output.print(describe_removed_chains(backend.name, plan, self._removed))
            if plan.shared_chain_count:
                kept = format_count(plan.shared_chain_count, "chain")
                self._output.print(
                    f"{backend.name}: kept {kept} that another mode of kube-proxy uses too; "
                    "remove them with --kube-proxy all"
                )
            for chain in plan.chains_in_use:
                self._output.print(f"{backend.name}: kept {chain}, since a chain of another program jumps to it")

    def _remove_sets(self) -> None:
        if self._leftovers.ipset_names is None:
            self._output.print("ipsets: skipped, ipset is not installed")
            return
        in_use = frozenset().union(*(plan.sets_in_use for _, plan in self._leftovers.chains_to_remove(self._modes)))
        plan = self._leftovers.sets_to_destroy(in_use)
        deadline = time.monotonic() + IPSET_RELEASE_SECONDS
        removed = [self._try(partial(xtables.destroy_set, name, deadline), f"ipset {name}") for name in plan.destroy]
        self._output.print(f"ipsets: {sum(removed)} {self._removed}" if removed else "ipsets: none found")
        for name in plan.keep:
            self._output.print(f"ipset {name}: kept, since a rule of another program uses it")

    def _remove_tables(self) -> None:
        library = WorkerProcess()
        for family in Family:
            try:
                remove_table(library, family, KUBE_PROXY_TABLE, self._output, dry_run=self._dry_run)
            except KernelError as error:
                self._fail(error)
