"""Proxier: one family's way from changed objects to a committed transaction.

    ServiceState ──check out──▶ plan ──▶ render ──▶ compare ──▶ commit ──▶ adopt

After a failed commit nothing is known of the table: the next sync reads it back and compares everything.
"""

from collections.abc import Callable

from knft.config import Config
from knft.delta.programmed import Programmed
from knft.model.names import Family, ServicePortName
from knft.render import layout
from knft.render.numbering import StickyPort
from knft.sync.basis import Basis, Owner, Part, TableState, basis_from_listing
from knft.sync.ports import TablePort
from knft.sync.prepare import Prepared, prepare
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState, Work

FULL_SYNC_SECONDS = 3600.0
"""How often everything is compared with what the kernel holds, whether or not anything has changed."""


class Proxier:
    """Keeps the table of one family equal to what its ServiceState knows."""

    def __init__(
        self,
        family: Family,
        config: Config,
        state: ServiceState,
        port: TablePort,
        timer: Callable[[], float],
    ) -> None:
        """``timer`` returns seconds since some moment before the table was made, the same one after a restart."""
        self.family = family
        self.state = state
        self._config = config
        self._port = port
        self._timer = timer
        self._programmed: Programmed[Owner] | None = None
        self._sticky: dict[str, StickyPort] = {}
        self._last_full = timer()
        self._unreported: Work | None = None

    def sync(self) -> SyncReport:
        """Bring the table up to date; raise KernelError where that failed, and do everything anew next time."""
        started = self._timer()
        work = self.state.check_out()
        self._unreported = work if self._unreported is None else self._unreported.followed_by(work)
        programmed, self._programmed = self._programmed, None
        if started - self._last_full >= FULL_SYNC_SECONDS:
            programmed = None
        basis = self._basis(programmed, work, started)
        prepared = prepare(basis, self.state, self._config, started)
        kernel_started = self._timer()
        self._send(basis, prepared)
        ended = self._timer()
        self._adopt(basis, prepared, ended)
        reported, self._unreported = self._unreported, None
        transaction = prepared.transaction
        return SyncReport(
            family=self.family,
            full=basis.full,
            service_ports=sum(isinstance(owner, ServicePortName) for owner in prepared.wanted),
            added=transaction.added_count,
            removed=transaction.removed_count,
            chains=len(transaction.chains),
            seconds=ended - started,
            kernel_seconds=ended - kernel_started,
            lost=self.state.lost(),
            unsticky=prepared.unsticky,
            trigger_times=reported.trigger_times,
            conntrack_cleanup_required=reported.conntrack_cleanup_required,
        )

    def _basis(self, programmed: Programmed[Owner] | None, work: Work, now: float) -> Basis:
        if programmed is None:
            self._last_full = now
            found = basis_from_listing(self._port.read(), self.family, self._config, self.state.service_ports(), now)
            return found.remembering(self._sticky)
        node = {Part.NODE} if work.node is not None else set[Part]()
        return Basis(programmed, TableState.READY, work.service_ports | node, self._sticky, full=False)

    def _send(self, basis: Basis, prepared: Prepared) -> None:
        transaction, sets = prepared.transaction, prepared.affinity_sets
        match basis.table:
            case TableState.READY:
                more = layout.more_declarations(self.family, basis.programmed.containers, sets)
                if more.containers:
                    self._port.declare(more)
                self._port.commit(transaction)
            case TableState.MISSING:
                self._port.declare(layout.declarations(self.family, sets))
                self._port.commit(transaction)
            case TableState.OTHER_LAYOUT:
                declared = layout.declarations(self.family, sets)
                self._port.replace(layout.whole_table(declared, transaction, basis.memories))

    def _adopt(self, basis: Basis, prepared: Prepared, now: float) -> None:
        programmed, transaction = basis.programmed, prepared.transaction
        programmed.adopt(prepared.contents())
        programmed.forget(prepared.changes, transaction.dropped, now)
        owned = {chain.name for chain in prepared.changes.written} | set(prepared.changes.unwanted)
        programmed.chains.update(chain.name for chain in transaction.chains if chain.name not in owned)
        declared = layout.declarations(self.family, prepared.affinity_sets)
        programmed.containers.update(container.name for container in declared.containers)
        programmed.containers.difference_update(transaction.dropped_sets)
        for identity, sticky in prepared.sticky.items():
            if sticky is None:
                basis.sticky.pop(identity)
            else:
                basis.sticky[identity] = sticky
        self._sticky = basis.sticky
        self._programmed = programmed
