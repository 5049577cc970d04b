"""``knft cleanup --kube-proxy``: removes kube-proxy's leftovers from this node."""

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from knft.app.leftovers import IPSETS, LINK, SERVERS, KubeProxyLeftovers
from knft.cli.cleanup_report import CleanupReport, Step
from knft.cli.table_removal import remove_table
from knft.errors import KernelError
from knft.families import Family
from knft.kernel import ipvs, xtables
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess
from knft.leftovers.chains import ChainPlan
from knft.leftovers.messages import describe_each_removed
from knft.leftovers.names import DEVICE
from knft.leftovers.names import TABLE as KUBE_PROXY_TABLE
from knft.leftovers.servers import ServerAddress
from knft.proxy_mode import Mode

IPSET_RELEASE_SECONDS = 5.0
"""How long deleted rules may keep ipsets in use: the kernel frees rules of iptables-nft after the transaction."""


def remove_leftovers(mode_name: str, report: CleanupReport) -> None:
    """Remove kube-proxy's leftovers of one mode, or of "all", and report what was removed.

    In a dry run, remove nothing, and report each object that would be removed. After a failure, report it and continue
    with the rest; raise KernelError at the end.
    """
    require_privilege()
    modes = frozenset(Mode) if mode_name == "all" else frozenset({Mode(mode_name)})
    _Cleanup(modes, report).run()
    report.finish("kube-proxy's leftovers")


class _Cleanup:
    """Removes virtual servers, then rules, then the ipsets that the rules used, then nftables tables."""

    def __init__(self, modes: Collection[Mode], report: CleanupReport) -> None:
        self._modes = modes
        self._report = report
        self._leftovers = KubeProxyLeftovers(self._fail, xtables.CHANGE_SECONDS)

    def run(self) -> None:
        """Remove all."""
        if Mode.IPVS in self._modes:
            self._remove_servers()
            self._remove_device()
        if self._modes != {Mode.NFTABLES}:
            self._remove_chains()
        if Mode.IPVS in self._modes:
            self._remove_sets()
        if Mode.NFTABLES in self._modes:
            self._remove_tables()

    def _fail(self, name: str, error: KernelError) -> None:
        self._report.fail(name, str(error))

    def _skip(self, step: Step) -> None:
        """Report an object or a group that does not exist, unless it could not be read."""
        if not self._report.has_failed(step.object):
            self._report.add(step)

    def _try(self, action: Callable[[], object], name: str, objects: Iterable[str] = ()) -> bool:
        """Remove what has this name, or report its objects in a dry run; return whether that succeeded."""
        if self._report.dry_run:
            for each in objects:
                self._report.add_removed(each)
            return True
        try:
            action()
        except KernelError as error:
            self._fail(name, error)
            return False
        return True

    def _add_group(self, group: str, kind: str, removed: Collection[bool]) -> None:
        """Report how many objects of a group were removed."""
        if removed:
            self._report.add_removed(group, {kind: sum(removed)})
        else:
            self._report.add(Step(group, "not found", {kind: 0}))

    def _remove_servers(self) -> None:
        plan = self._leftovers.servers_to_remove
        if plan is None:
            self._skip(Step(SERVERS, "skipped", reason="IPVS is not loaded"))
            return
        removed = [self._remove_server(server) for server in plan.remove]
        self._add_group(SERVERS, "virtual server", removed)
        if plan.keep:
            counts, names = {"virtual server": len(plan.keep)}, tuple(map(str, plan.keep))
            self._report.add(Step(SERVERS, "kept", counts, names, reason="not known to be kube-proxy's"))

    def _remove_server(self, server: ServerAddress) -> bool:
        name = f"virtual server {server}"
        delete = partial(ipvs.delete_server, str(server.address), server.protocol, server.port)
        return self._try(delete, name, [name])

    def _remove_device(self) -> None:
        device = self._leftovers.kube_ipvs_link
        if device is None:
            self._skip(Step(LINK, "not found"))
        elif not self._leftovers.has_ipvs_device:
            reason = f"its kind is {device.kind or 'unknown'}, so it is not kube-proxy's"
            self._report.add(Step(LINK, "kept", reason=reason))
        elif self._try(partial(ipvs.delete_device, DEVICE), LINK):
            self._report.add_removed(LINK)

    def _remove_chains(self) -> None:
        plans = self._leftovers.chains_to_remove(self._modes)
        if not xtables.backends():
            self._report.add(Step("iptables", "skipped", reason="not installed"))
        for (backend, plan), (_, saved) in zip(plans, self._leftovers.saved_rules, strict=True):
            for table in saved.unreadable_tables:
                reason = "since it has rules that only nft can show"
                self._report.add(Step(f"{backend.name}: table {table}", "kept", reason=reason))
            counts = {"chain": plan.chain_count, "rule": plan.rule_count}
            if not plan.restore_input:
                self._report.add(Step(backend.name, "not found", counts))
            elif self._try(
                partial(xtables.restore, backend, plan.restore_input),
                backend.name,
                describe_each_removed(backend.name, plan),
            ):
                self._report.add_removed(backend.name, counts)
            self._add_kept_chains(backend.name, plan)

    def _add_kept_chains(self, backend: str, plan: ChainPlan) -> None:
        if plan.shared_chain_count:
            reason = "since another mode of kube-proxy uses them too; remove them with --kube-proxy all"
            self._report.add(Step(f"{backend}: chains", "kept", {"chain": plan.shared_chain_count}, reason=reason))
        for table, _, chain in (each.partition(" ") for each in plan.chains_in_use):
            reason = "since a chain of another program jumps to it"
            self._report.add(Step(f"{backend}: chain in table {table}: {chain}", "kept", reason=reason))

    def _remove_sets(self) -> None:
        if self._leftovers.ipset_names is None:
            self._skip(Step(IPSETS, "skipped", reason="ipset is not installed"))
            return
        in_use = frozenset().union(*(plan.sets_in_use for _, plan in self._leftovers.chains_to_remove(self._modes)))
        plan = self._leftovers.sets_to_destroy(in_use)
        deadline = time.monotonic() + IPSET_RELEASE_SECONDS
        removed = [
            self._try(partial(xtables.destroy_set, name, deadline), f"ipset {name}", [f"ipset {name}"])
            for name in plan.destroy
        ]
        self._add_group(IPSETS, "ipset", removed)
        for name in plan.keep:
            self._report.add(Step(f"ipset {name}", "kept", reason="since a rule of another program uses it"))

    def _remove_tables(self) -> None:
        library = WorkerProcess()
        for family in Family:
            try:
                remove_table(library, family, KUBE_PROXY_TABLE, self._report)
            except KernelError as error:
                self._fail(f"table {family.nft} {KUBE_PROXY_TABLE}", error)
