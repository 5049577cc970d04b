"""SyncObserver: the interface of code that is notified of syncs: health, metrics, conntrack, events."""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from knft.families import Family
from knft.sync.audit import TablePosition
from knft.sync.foreign_changes import ForeignChangeSummary
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

NOT_COMPARED = "a sync was running, or the last one had failed"
"""The error of an audit that could not compare a table, because it was unknown what the table should contain."""
MAX_NAMES = 20


class AuditResult(Struct, frozen=True):
    """How many elements and chains differed from what knft committed, or why the table was not compared.

    ``names`` are the chains that differed, and the sets and maps of the elements, at most ``MAX_NAMES``.
    """

    differences: int = 0
    error: str = ""
    names: tuple[str, ...] = ()


def audit_result(differences: Collection[TablePosition]) -> AuditResult:
    """Return the result of an audit that compared the table."""
    return AuditResult(len(differences), names=tuple(sorted({name for name, _ in differences})[:MAX_NAMES]))


class SyncObserver:
    """Base class of observers, with empty methods. The Daemon logs an observer's exception and continues.

    The sync thread calls the methods, so each must return quickly. Any thread may call ``sync_queued``, and the audit's
    thread calls ``table_audited``.
    """

    def loop_started(self, family: Family) -> None:
        """Handle the start of the sync loop, which begins with a sync.

        ``sync_queued`` is not called for this first sync. An observer that measures how long changes wait, such as a
        health check, must not count the first sync as overdue: it may take long.
        """

    def sync_queued(self, family: Family) -> None:
        """Handle a change that makes a sync due."""

    def sync_started(self, family: Family) -> None:
        """Handle the start of a sync.

        Until ``sync_succeeded``, the kernel may contain rules that the observer does not know.
        """

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Handle a successful sync; ``state`` is the state that was synced, valid only during the call."""

    def sync_failed(self, family: Family, seconds: float, error: str) -> None:
        """Handle a failed sync, which took ``seconds``, and its ``error``; the Daemon retries it."""

    def table_changed(self, family: Family, changes: ForeignChangeSummary) -> None:
        """Handle changes of the table by other programs; the sync that follows reads the table back."""

    def table_audited(self, family: Family, result: AuditResult) -> None:
        """Handle an audit, before the sync that repairs the differences; the audit's thread calls it."""

    def table_left(self, family: Family) -> None:
        """Handle that the table is left to an older version of knft; called at each sync of another family, too.

        No sync of the family follows, and its rules are unknown, until that version has ended.
        """


def overriding_methods(
    observers: Iterable[SyncObserver], method: Callable[..., None]
) -> tuple[tuple[str, Callable[..., None]], ...]:
    """Return the names of the classes that override a method of SyncObserver, and the methods, in order."""
    name = method.__name__
    return tuple(
        (type(observer).__name__, getattr(observer, name))
        for observer in observers
        if getattr(type(observer), name) is not method
    )
