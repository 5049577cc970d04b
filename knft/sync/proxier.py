"""Proxier: one family's way from changed objects to a committed transaction.

    ServiceState ──check out──▶ plan ──▶ render ──▶ compare ──▶ commit ──▶ adopt

After a failed commit nothing is known of the table: the next sync reads it back and compares everything.
"""

from collections.abc import Callable, Sequence

from msgspec import structs

from knft.config import Config
from knft.delta.programmed import Programmed
from knft.errors import KernelError, UnavailableError
from knft.model.names import Family, ServicePortName
from knft.render import layout
from knft.render.numbering import StickyPort, trusted
from knft.sync.audit import Place, Snapshot, differences, places
from knft.sync.basis import Basis, Owner, Part, TableState, basis_from_listing
from knft.sync.doubts import Doubt, Doubts
from knft.sync.isolate import LeftOut, halve
from knft.sync.ports import TablePort
from knft.sync.prepare import Prepared, prepare
from knft.sync.report import Done, SyncReport
from knft.sync.state import ServiceState, Work

TIDY_SECONDS = 3600.0
"""How often what sticky ports have left behind is looked through."""


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
        self._last_tidy = timer()
        self._doubts = Doubts()
        self._touched: set[Place] | None = None
        self._unreported: Work | None = None
        self._left_out = LeftOut(config.sync_period)
        self._done = Done()

    def sync(self) -> SyncReport:
        """Bring the table up to date; raise KernelError where that failed, and do everything anew next time.

        Where only some Service ports are refused the others are in force, and the report names those.
        """
        started = self._timer()
        work = self.state.check_out()
        self._unreported = work if self._unreported is None else self._unreported.followed_by(work)
        self._done = Done()
        programmed, self._programmed = self._programmed, None
        if self._is_comparison_due(work, started):
            programmed = None
        full = programmed is None or not self._change(programmed, work, started)
        if full:
            self._compare_everything(started)
        reported, self._unreported = self._unreported, None
        return SyncReport(
            family=self.family,
            full=full,
            service_ports=self._done.service_ports,
            added=self._done.added,
            removed=self._done.removed,
            chains=self._done.chains,
            seconds=self._timer() - started,
            kernel_seconds=self._done.kernel_seconds,
            unsticky=tuple(self._done.unsticky),
            lost=self.state.lost(),
            left_out=self._left_out.reasons(),
            retry_seconds=self._left_out.next_due(self._timer()),
            trigger_times=reported.trigger_times,
            conntrack_cleanup_required=reported.conntrack_cleanup_required,
        )

    def doubt(self, doubt: Doubt) -> None:
        """Have the next sync compare everything; from any thread."""
        self._doubts.add(doubt)

    def audit(self, port: TablePort) -> int:
        """Compare what was committed with what ``port`` reads, from another thread than the one that syncs.

        Returns how many elements and chains differ; the next sync mends them. Raises KernelError where the table
        cannot be read. Where a sync failed, or is under way, nothing is compared.
        """
        self._touched = set[Place]()
        listing, committed = port.read(), self._snapshot()
        touched, self._touched = self._touched, None
        if committed is None:
            return 0
        found = differences(listing, committed, self.family, self._config) - touched
        if found:
            self.doubt(Doubt(frozenset(name for name, key in found if not key)))
        return len(found)

    def _snapshot(self) -> Snapshot | None:
        programmed = self._programmed
        return Snapshot(programmed.everything(), frozenset(programmed.chains)) if programmed is not None else None

    def _is_comparison_due(self, work: Work, now: float) -> bool:
        """Tell whether a change is not enough: something may be in the kernel that knft does not know of."""
        gone = [name for name in self._left_out.names() if not self.state.has(name)]
        self._left_out.forget(gone)
        self._left_out.note_changed(work.service_ports)
        return bool(gone or self._left_out.due(now) or self._doubts)

    def _change(self, programmed: Programmed[Owner], work: Work, now: float) -> bool:
        """Commit what has changed; return whether the kernel held what it was believed to hold."""
        changed = work.service_ports - self._left_out.names()
        node = {Part.NODE} if work.node is not None else set[Part]()
        tidy = now - self._last_tidy >= TIDY_SECONDS
        basis = Basis(programmed, TableState.READY, changed | node, self._sticky, full=False, tidy=tidy)
        self._last_tidy = now if tidy else self._last_tidy
        try:
            self._commit(basis, now)
        except KernelError:
            return False
        return True

    def _compare_everything(self, now: float) -> None:
        """Read the table back, and make of it what is wanted; what is refused then is some Service port's fault."""
        doubts = self._doubts.take()
        try:
            basis = self._compare(doubts, now)
        except BaseException:
            self._doubts.add(doubts)
            raise
        self._try(basis.programmed, self._left_out.due(now), now)

    def _compare(self, doubts: Doubt, now: float) -> Basis:
        try:
            basis = self._read(now).distrusting(doubts.chains)
            if doubts.declarations and basis.listing is not None:
                self._port.declare(layout.declarations(self.family))
            self._commit(basis, now)
        except KernelError:
            # Somebody may have changed the table since, or the library died: another look tells.
            basis = self._read(now).distrusting(doubts.chains)
            self._commit_or_isolate(basis, now)
        return basis

    def _read(self, now: float) -> Basis:
        self._last_tidy = now
        left_out = self._left_out.names()
        names = [name for name in self.state.service_ports() if name not in left_out]
        basis = basis_from_listing(self._port.read(), self.family, self._config, names, now)
        return structs.replace(basis, sticky=trusted(basis.sticky, self._sticky), spared=left_out)

    def _commit_or_isolate(self, basis: Basis, now: float) -> None:
        """Commit all, or where that is refused all but who is at fault; raise KernelError where nobody is."""
        try:
            self._commit(basis, now)
        except UnavailableError:
            raise
        except KernelError as refusal:
            self._isolate(basis, refusal, now)

    def _isolate(self, basis: Basis, refusal: KernelError, now: float) -> None:
        names = sorted(owner for owner in basis.owners if isinstance(owner, ServicePortName))
        alone = structs.replace(basis, owners=basis.owners - set(names), spared=basis.spared | set(names))
        try:
            self._commit(alone, now)
        except UnavailableError:
            raise
        except KernelError:
            # What everything stands on is refused: somebody has changed what no transaction can mend.
            try:
                self._commit(basis.replacing(), now)
            except KernelError:
                raise refusal from None
            return
        self._try(basis.programmed, names, now)

    def _try(self, programmed: Programmed[Owner], names: Sequence[ServicePortName], now: float) -> None:
        """Commit these Service ports, but for those that are refused even alone."""
        if not names:
            return

        def commit(part: Sequence[ServicePortName]) -> None:
            self._commit(Basis(programmed, TableState.READY, frozenset(part), self._sticky, full=False), now)

        for name, error in halve(names, commit).items():
            self._left_out.note(name, str(error), now)

    def _commit(self, basis: Basis, now: float) -> None:
        """Make a transaction of what the owners of a basis want, and send it; raise KernelError where it is refused."""
        prepared = prepare(basis, self.state, self._config, now)
        started = self._timer()
        believed, self._programmed = self._programmed, None
        if self._touched is not None:
            self._touched |= places(prepared.transaction)
        try:
            self._send(basis, prepared)
        except UnavailableError:
            raise
        except KernelError:
            self._programmed = believed  # A refused transaction has changed nothing.
            raise
        self._done.add(prepared, self._timer() - started)
        self._adopt(basis, prepared, now)
        self._left_out.forget(basis.owners)
        for name, error in prepared.failed.items():
            self._left_out.note(name, f"knft fails on it, please report this: {error!r}", now)

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
                self._port.replace(layout.whole_table(declared, transaction, basis.memories()))

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
