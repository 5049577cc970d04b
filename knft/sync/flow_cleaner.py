"""FlowCleaner: deletes conntrack entries of removed UDP endpoints (docs/behaviour/conntrack.md#stale-udp-entries).

    sync ──changed ports──▶ UdpFrontends ◀──is it stale?── own thread: dump, wait until up to date, delete

A pass dumps a family's UDP entries and deletes the stale ones; kube-proxy and the metrics call it a reconciliation. In
code, an entry is a Flow. UdpFrontends gets new endpoints only when their rules are in force, at the end of a sync. An
entry that is dumped during a sync may already lead to a new endpoint. If a sync runs during the dump, the pass
therefore waits for the end of the sync and checks the stale entries again.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection

from knft.config import Config
from knft.decide.stale_flows import RemovedFrontends, UdpFrontends, packed_address
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.conntrack import DeletedFlows, FlowDump, FlowTable, open_flow_table
from knft.kernel.conntrack_messages import Flow
from knft.sync.connection_drainer import ConnectionDrainer
from knft.sync.node_port_addresses import node_port_addresses
from knft.sync.observer import SyncObserver
from knft.sync.pass_errors import PassErrors
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

POLL_SECONDS = 0.5
"""Longest delay until a stop or a due retry is noticed."""
IDLE_FACTOR = 4.0
"""The pause after a pass, as a multiple of its CPU time: at most a fifth of a CPU is used."""
UNANSWERED_GRACE_SECONDS = 1.0
"""In the first pass after a change, the minimum age of a deleted entry without a reply: a reply on its way would find
no entry, and be dropped. A repeated pass deletes entries that no earlier pass has seen at once."""
MIN_RETRY_SECONDS = 1.0
"""First delay before an incomplete pass is repeated; doubles each time."""
MAX_RETRY_SECONDS = 60.0

NO_DELETED_FLOWS = DeletedFlows(0, "")


class _FamilyState:
    """The state of one family's syncs, as observed, and of its passes."""

    def __init__(self) -> None:
        self.frontends = UdpFrontends()
        self.nodeport_ips: frozenset[str] = frozenset()
        self.is_due = False
        """Whether entries may have become stale since the last pass."""
        self.is_current = False
        """Whether ``frontends`` equals the rules in force: no sync is running, and the last one succeeded."""
        self.is_failed = False
        """Whether the last sync failed, so that the rules in force are unknown."""
        self.successes = 0
        self.retry_at = math.inf
        """When to repeat a pass that was incomplete, although nothing has changed."""
        self.retry_seconds = MIN_RETRY_SECONDS
        self.is_after_change = False
        """Whether the running pass is the first after a change, and not a repetition."""
        self.cleaned: RemovedFrontends = {}
        """Removed frontends whose entries are deleted; the next sync forgets them."""
        self.unanswered: dict[Flow, float] = {}
        """Stale entries without a reply, and when they were first seen."""

    def due_for_deletion(self, stale: list[Flow], now: float, grace: float) -> list[Flow]:
        """Return the stale entries to delete now, and schedule a repetition for the others.

        In a repetition, entries that are seen for the first time are deleted at once. Otherwise a client that keeps
        sending to a removed endpoint would cause passes forever.
        """
        first_seen = now if self.is_after_change else -math.inf
        since = {flow: self.unanswered.get(flow, first_seen) for flow in stale if not flow.has_reply}
        self.unanswered = {flow: first for flow, first in since.items() if now - first < grace}
        if self.unanswered:
            self.retry_at = min(self.retry_at, now + grace)
        return [flow for flow in stale if flow not in self.unanswered]

    def is_pass_due(self, now: float) -> bool:
        """Whether to run a pass for the family."""
        return (self.is_due or now >= self.retry_at) and not self.is_failed

    def start_pass(self) -> None:
        """Record that a pass starts."""
        self.is_after_change, self.is_due, self.retry_at = self.is_due, False, math.inf

    def finish_pass(self, now: float, *, is_complete: bool) -> None:
        """Schedule a repetition, with backoff, if the pass was incomplete."""
        if is_complete:
            self.retry_seconds = MIN_RETRY_SECONDS
        else:
            self.retry_at = min(self.retry_at, now + self.retry_seconds)
            self.retry_seconds = min(2 * self.retry_seconds, MAX_RETRY_SECONDS)


class FlowCleaner(SyncObserver):
    """Observes syncs, and deletes stale entries in its own thread (``run``).

    ``on_pass_finished`` is called after each pass with the family, its seconds, and the number of deleted entries.
    """

    def __init__(
        self,
        config: Config,
        local_addresses: Callable[[], frozenset[str]],
        on_pass_finished: Callable[[Family, float, int], None] = lambda *_: None,
        *,
        drainer: ConnectionDrainer | None = None,
        clock: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
        grace: float = UNANSWERED_GRACE_SECONDS,
    ) -> None:
        """``local_addresses`` returns the machine's addresses, which may all accept NodePorts, or raises KernelError.

        ``drainer`` ends connections in the same thread. ``thread_time`` returns the CPU seconds of the calling thread.
        ``grace`` is the minimum age in seconds of a deleted entry without a reply.
        """
        self._config = config
        self._local_addresses = local_addresses
        self._on_pass_finished = on_pass_finished
        self._drainer = drainer
        self._clock = clock
        self._thread_time = thread_time
        self._grace = grace
        self._families = {family: _FamilyState() for family in Family}
        self._lock = threading.Lock()
        # Two conditions, so that a sync wakes the thread only if there is something to do.
        self._became_due = threading.Condition(self._lock)
        self._sync_ended = threading.Condition(self._lock)
        self._stop = threading.Event()
        self._errors = PassErrors("conntrack cleanup")

    def sync_started(self, family: Family) -> None:
        """Record that the frontends may be out of date."""
        with self._lock:
            self._families[family].is_current = False

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Update the UDP frontends, and schedule a pass if entries may have become stale."""
        family_state = self._families[report.family]
        changed = report.conntrack_cleanup_required
        with self._lock:
            cleaned, family_state.cleaned = family_state.cleaned, {}
        family_state.frontends.forget(cleaned)
        for name in report.changed_service_ports:
            if name.protocol == "UDP":
                changed |= family_state.frontends.update(name, state.service_port(name), state.endpoints(name))
        changed |= family_state.nodeport_ips != state.node.nodeport_ips
        with self._lock:
            family_state.nodeport_ips = state.node.nodeport_ips
            family_state.is_due |= changed
            family_state.is_current, family_state.is_failed = True, False
            family_state.successes += 1
            self._sync_ended.notify_all()
            if family_state.is_due:
                self._became_due.notify_all()

    def sync_failed(self, family: Family, _seconds: float, _error: str) -> None:
        """Record that the rules in force are unknown."""
        with self._lock:
            self._families[family].is_failed = True
            self._sync_ended.notify_all()

    def table_left(self, family: Family) -> None:
        """Record that the rules in force are unknown."""
        self.sync_started(family)
        self.sync_failed(family, 0.0, "")

    def run(self, stop: threading.Event) -> None:
        """Run the due passes until ``stop`` is set. Needs its own thread."""
        self._stop = stop
        while not stop.is_set():
            due = self._start_due_passes()
            # CPU time, not wall time: waiting for a sync costs nothing.
            before = self._thread_time()
            for family in due:
                self._errors.run(family, self.run_pass)
            if (self._drainer is not None and self._drainer.run_due_passes()) or due:
                stop.wait((self._thread_time() - before) * IDLE_FACTOR)

    def _start_due_passes(self) -> list[Family]:
        """Wait shortly for a due family; return all due families, and record that their passes start."""
        with self._lock:
            self._became_due.wait_for(self._due_families, POLL_SECONDS)
            due = self._due_families()
            for family in due:
                self._families[family].start_pass()
            return due

    def _due_families(self) -> list[Family]:
        now = self._clock()
        return [family for family, pending in self._families.items() if pending.is_pass_due(now)]

    def run_pass(self, family: Family) -> int:
        """Run one pass in the calling thread's network namespace; return how many stale entries were deleted.

        If the last sync failed, nothing is deleted until the next success. If some entries could not be checked or
        deleted, another pass is scheduled. Raises KernelError, at the end if only some deletions were refused.
        """
        family_state, is_complete = self._families[family], False
        removed = family_state.frontends.removed()
        try:
            listed, deleted = self._delete_stale_flows(family)
            is_complete = listed and not deleted.error
        finally:
            with self._lock:
                family_state.finish_pass(self._clock(), is_complete=is_complete)
                if is_complete and not family_state.unanswered and not family_state.is_due:
                    family_state.cleaned = removed
        if deleted.error:
            raise KernelError(deleted.error)
        return deleted.count

    def _delete_stale_flows(self, family: Family) -> tuple[bool, DeletedFlows]:
        """Delete stale entries; return whether the dump was complete, and the result of the deletions."""
        family_state, started = self._families[family], self._clock()
        complete, deleted = True, NO_DELETED_FLOWS
        if family_state.frontends:
            node_port_addresses = self._node_port_addresses(family)

            def is_stale(original_destination: bytes, reply_source: bytes) -> bool:
                return family_state.frontends.is_stale(original_destination, reply_source, node_port_addresses)

            with open_flow_table(family.number) as table:
                dump = _dump_flows(family, table, is_stale)
                complete = dump.complete
                if dump.flows and not self._wait_until_current(family_state):
                    return complete, NO_DELETED_FLOWS
                stale = [flow for flow in dump.flows if is_stale(flow.original_destination, flow.reply_source)]
                deleted = table.delete(family_state.due_for_deletion(stale, self._clock(), self._grace))
        seconds = self._clock() - started
        if family_state.frontends:
            log.debug(
                "%s: deleted %d stale UDP conntrack entries in %.1f ms", family.value, deleted.count, seconds * 1e3
            )
        self._on_pass_finished(family, seconds, deleted.count)
        return complete, deleted

    def _wait_until_current(self, family_state: _FamilyState) -> bool:
        """Wait for the end of a running sync; return whether the frontends are up to date then."""
        with self._lock:
            before = family_state.successes
            while not family_state.is_current and not family_state.is_failed and family_state.successes == before:
                if self._stop.is_set():
                    return False
                self._sync_ended.wait(POLL_SECONDS)
            current = family_state.is_current or family_state.successes > before
            family_state.is_due |= not current
            return current

    def _node_port_addresses(self, family: Family) -> Collection[bytes]:
        family_state = self._families[family]
        if not family_state.frontends.has_node_ports:
            return frozenset(map(packed_address, family_state.nodeport_ips))
        return node_port_addresses(family, self._config, family_state.nodeport_ips, self._local_addresses)


def _dump_flows(family: Family, table: FlowTable, is_stale: Callable[[bytes, bytes], bool]) -> FlowDump:
    dump = table.dump(is_stale)
    if not dump.complete:
        log.debug("%s: the kernel interrupted the dump of conntrack entries; some were not checked", family.value)
    return dump
