"""Proxier: one family's way from changed objects to a committed transaction.

    ServiceState ──check out──▶ plan ──▶ render ──▶ compare ──▶ commit ──▶ adopt

After a failed commit nothing is known of the table: the next sync reads it back and compares everything.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import structs

from knft.config import Config
from knft.delta.programmed import Programmed
from knft.errors import KernelError, LibraryDiedError, TableOwnedError, UnavailableError
from knft.families import Family
from knft.model.names import ServicePortName
from knft.nft.objects import Contents
from knft.render import layout
from knft.sync.basis import Basis, Owner, Part, Scope, TableState, basis_from_listing
from knft.sync.committed import Committed
from knft.sync.doubts import Doubt, Doubts
from knft.sync.isolate import LeftOut, Waiting, halve
from knft.sync.past import Past
from knft.sync.ports import TablePort
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
        self._committed = Committed(config, state, port, timer)
        self._last_tidy = timer()
        self._doubts = Doubts()
        self._unreported: Work | None = None
        self._left_out = LeftOut(config.sync_period)
        self._had: dict[ServicePortName, Contents] = {}
        """What those that are left out had before, as far as it is known."""
        self._unswept: Waiting | None = None
        """Why what nobody wants is still there."""
        self._done = Done()
        self._cleanups_reported = 0
        """How many refused cleanups were in reports."""

    def sync(self) -> SyncReport:
        """Bring the table up to date; raise KernelError where that failed, and do everything anew next time.

        Where only some Service ports are refused the others are in force, and the report names those.
        """
        started = self._timer()
        self._done = Done()
        try:
            work = self.state.check_out()
            reported = work if self._unreported is None else self._unreported.followed_by(work)
            self._unreported = reported
            full = self._bring_up_to_date(work, started)
        except BaseException as error:
            self._committed.give_up()
            if isinstance(error, LibraryDiedError):
                self._port.ensure_working()  # Or it says why it dies.
            raise
        self._unreported = None
        refused_before, self._cleanups_reported = self._cleanups_reported, self._committed.refused_cleanups
        return SyncReport(
            family=self.family,
            full=full,
            service_ports=self._done.service_ports,
            added=self._done.added,
            removed=self._done.removed,
            chains=self._done.chains,
            seconds=self._timer() - started,
            kernel_seconds=self._done.kernel_seconds,
            changed=reported.service_ports,
            unsticky=tuple(self._done.unsticky),
            lost=self.state.lost(),
            left_out=self._left_out.reasons(),
            unswept=self._unswept.reason if self._unswept is not None else "",
            refused_cleanups=self._cleanups_reported - refused_before,
            again_within=self._again_within(),
            trigger_times=reported.trigger_times,
            conntrack_cleanup_required=reported.conntrack_cleanup_required,
        )

    def _again_within(self) -> float | None:
        """Return in how many seconds there will be something to do again, None where nothing is known of."""
        now, programmed = self._timer(), self._committed.programmed
        times = [waiting.due - now + 0.1 for waiting in programmed.unwanted.values()] if programmed is not None else []
        times += [due for due in [self._left_out.next_due(now)] if due is not None]
        times += [self._unswept.due - now] if self._unswept is not None else []
        return max(0.0, min(times)) if times else None

    def _bring_up_to_date(self, work: Work, now: float) -> bool:
        """Commit what has changed, or what differs; return whether everything was compared."""
        due = self._is_comparison_due(work, now)
        before = self._committed.give_up()
        if not due and before is not None and self._change(before, work, now):
            return False
        self._compare_everything(Past(before or Programmed()), now)
        return True

    def doubt(self, doubt: Doubt) -> None:
        """Have the next sync compare everything; from any thread."""
        self._doubts.add(doubt)

    def audit(self, port: TablePort) -> int | None:
        """Compare what was committed with what ``port`` reads, from another thread than the one that syncs.

        Returns how many elements and chains differ, which the next sync mends; None where a sync failed, or is under
        way, so that nothing was compared. Raises KernelError where the table cannot be read.
        """
        found = self._committed.audit(port)
        if found:
            self.doubt(Doubt(frozenset(name for name, key in found if not key)))
        return None if found is None else len(found)

    def _is_comparison_due(self, work: Work, now: float) -> bool:
        """Tell whether a change is not enough: something may be in the kernel that knft does not know of."""
        gone = [name for name in self._left_out.names() if not self.state.has(name)]
        self._forget_left_out(frozenset(gone))
        self._left_out.note_changed(work.service_ports)
        sweep_due = self._unswept is not None and self._unswept.due <= now
        return bool(gone or self._left_out.due(now) or sweep_due or self._doubts)

    def _change(self, programmed: Programmed[Owner], work: Work, now: float) -> bool:
        """Commit what has changed; return whether the kernel held what it was believed to hold."""
        changed = work.service_ports - self._left_out.names()
        node = {Part.NODE} if work.node is not None else set[Part]()
        tidy = now - self._last_tidy >= TIDY_SECONDS
        basis = Basis(programmed, TableState.READY, changed | node, self._committed.sticky, Scope.CHANGE, tidy=tidy)
        self._last_tidy = now if tidy else self._last_tidy
        try:
            self._commit(basis, Past(programmed), now)
        except KernelError:
            return False
        return True

    def _compare_everything(self, past: Past, now: float) -> None:
        """Read the table back, and make of it what is wanted; what is refused then is some Service port's fault."""
        doubts, out_before = self._doubts.take(), self._left_out.names()
        try:
            past = self._compare(doubts, past, now)
        except BaseException:
            self._doubts.add(doubts)
            raise
        # What stood in their way may be gone, with the table or with what somebody else had done to it.
        again = sorted(out_before & self._left_out.names()) if self._done.remade else self._left_out.due(now)
        self._try(again, past, now)
        if again or not self._committed.swept:
            self._sweep(now)
        else:
            self._unswept = None

    def _compare(self, doubts: Doubt, past: Past, now: float) -> Past:
        """Make of the table, as it is read back, what is wanted; return the past with what was read."""
        try:
            basis = self._look(doubts, now)
            past = _with_found(past, basis)
            self._commit(basis, past, now)
        except KernelError:
            # Somebody may have changed the table since, or the library died; or a set is of another kind: another look
            # tells.
            basis = self._look(doubts.joined(Doubt(declarations=True)), now)
            past = _with_found(past, basis)
            try:
                self._commit(basis, past, now)
            except TableOwnedError:
                raise
            except KernelError as refusal:
                if isinstance(refusal, LibraryDiedError):
                    self._port.ensure_working()
                self._isolate(basis, refusal, past, now)
        return past

    def _look(self, doubts: Doubt, now: float) -> Basis:
        """Read the table back."""
        left_out = self._left_out.names()
        names = [name for name in self.state.service_ports() if name not in left_out]
        found = basis_from_listing(self._port.read(), self.family, self._config, names, now)
        had = Contents.merged(self._had.values())
        basis = structs.replace(found, sticky=self._committed.numbers(found.sticky), spared=left_out, had=had)
        if basis.table is not TableState.READY or not doubts.declarations:
            return basis.distrusting(doubts)
        try:
            self._port.declare(layout.declarations(self.family))
        except UnavailableError:
            raise
        except KernelError:
            return basis.replacing()  # A set or a map of knft's name is none of knft's kind.
        return basis.distrusting(doubts)

    def _isolate(self, basis: Basis, refusal: KernelError, past: Past, now: float) -> None:
        """Commit what all Service ports stand on, then them in halves; raise ``refusal`` where nobody is at fault."""
        names = sorted(owner for owner in basis.owners if isinstance(owner, ServicePortName))
        alone = structs.replace(
            basis, owners=basis.owners - set(names), spared=basis.spared | set(names), scope=Scope.FOUNDATION
        )
        try:
            self._commit(alone, past, now)
        except UnavailableError:
            raise
        except KernelError:
            # What everything stands on is refused: somebody has changed what no transaction can mend.
            try:
                self._commit(basis.replacing(), past, now)
            except KernelError:
                raise refusal from None
            return
        self._try(names, past, now)

    def _try(self, names: Sequence[ServicePortName], past: Past, now: float) -> None:
        """Commit these Service ports, but for those that are refused even alone."""
        for name, error in halve(names, lambda part: self._commit(self._beside(frozenset(part)), past, now)).items():
            self._leave_out(name, str(error), past, now)
            if isinstance(error, UnavailableError):
                self.doubt(Doubt())  # It may have been carried out.

    def _sweep(self, now: float) -> None:
        """Remove what nobody wants; where that is refused, it is tried again after growing pauses."""
        sweep = structs.replace(
            self._beside(frozenset()),
            scope=Scope.SWEEP,
            spared=self._left_out.names(),
            had=Contents.merged(self._had.values()),
        )
        try:
            self._commit(sweep, Past(Programmed()), now)
        except KernelError as error:
            if isinstance(error, UnavailableError):
                if not isinstance(error, LibraryDiedError):
                    raise
                self._port.ensure_working()
                self.doubt(Doubt())  # It may have been carried out.
            self._committed.refused_cleanups += 1
            first = Waiting(str(error), now, self._config.sync_period)
            self._unswept = self._unswept.refused_again(str(error), now) if self._unswept is not None else first
        else:
            self._unswept = None

    def _beside(self, names: frozenset[ServicePortName]) -> Basis:
        """Return the basis of a change of these Service ports alone, beside what was committed last."""
        if self._committed.programmed is None:
            msg = "nothing was committed before"
            raise RuntimeError(msg)
        return Basis(
            self._committed.programmed, TableState.READY, frozenset[Owner](names), self._committed.sticky, Scope.CHANGE
        )

    def _leave_out(self, name: ServicePortName, reason: str, past: Past, now: float) -> None:
        if name not in self._left_out:
            self._had[name] = past.had(name)
        self._left_out.note(name, reason, now)

    def _commit(self, basis: Basis, past: Past, now: float) -> None:
        """Commit what the owners of a basis want; raise KernelError where it is refused."""
        prepared, seconds = self._committed.commit(basis, now)
        self._done.add(prepared, seconds, remade=basis.table is not TableState.READY)
        self._forget_left_out(basis.owners - prepared.failed.keys())
        for name, error in prepared.failed.items():
            self._leave_out(name, f"knft fails on it, please report this: {error!r}", past, now)

    def _forget_left_out(self, owners: Collection[Owner]) -> None:
        self._left_out.forget(owners)
        self._had = {name: had for name, had in self._had.items() if name in self._left_out}


def _with_found(past: Past, basis: Basis) -> Past:
    return structs.replace(past, found=basis.listing.contents) if basis.listing is not None else past
