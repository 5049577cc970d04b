"""FlowCleaner: forgets the UDP flows that lead where no endpoint is any more, beside the syncs (F.1).

    synced ──changed ports──▶ UdpFrontends ◀──is it stale?── a thread: list, wait for a settled ledger, forget

Rules are in force before the ledger knows of their endpoints. A flow that was listed meanwhile may lead to one of them,
so it is judged again once a sync has succeeded that had begun before.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection

from knft.config import Config
from knft.decide.stale_flows import UdpFrontends, packed_address
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.conntrack import DeletedFlows, FlowDump, FlowTable, open_flow_table
from knft.kernel.conntrack_messages import Flow
from knft.model import addresses
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

POLL_SECONDS = 0.5
"""How long it takes to notice that one has to stop, or that it is time to try again."""
IDLE_FACTOR = 4.0
"""So many times as long as it has computed, nothing is done: at most a fifth of a processor is used, whatever comes."""
UNANSWERED_GRACE_SECONDS = 1.0
"""How long a flow that nobody has answered yet is left alone: an answer on its way would find no flow, and be lost."""
MIN_RETRY_SECONDS = 1.0
"""When flows are looked at again, of which some could not be; twice as long every time that it happens again."""
MAX_RETRY_SECONDS = 60.0

NOTHING = DeletedFlows(0, "")


class _Heard:
    """What was heard of one family's syncs."""

    def __init__(self) -> None:
        self.ledger = UdpFrontends()
        self.nodeport_ips: frozenset[str] = frozenset()
        self.is_due = False
        """Whether flows may have become stale since they were looked at."""
        self.is_settled = False
        """Whether the ledger knows every rule that is in force: no sync is under way, and the last has succeeded."""
        self.is_failed = False
        """Whether the last sync has failed: nobody knows then what is in force."""
        self.successes = 0
        self.retry_at = math.inf
        """When to look again, though nothing has changed, since the last look was not the whole of it."""
        self.retry_seconds = MIN_RETRY_SECONDS
        self.is_after_change = False
        """Whether the look under way is the first after a change, and not only a repetition."""
        self.unanswered: dict[Flow, float] = {}
        """Since when stale flows are known that nobody has answered yet."""

    def ripe(self, stale: list[Flow], now: float, grace: float) -> list[Flow]:
        """Return those of the stale flows that are to be forgotten now; flows are looked at again for the others.

        What a repetition sees for the first time has come since: whoever goes on dialling where there is no endpoint
        would have flows looked at for ever.
        """
        first_seen = now if self.is_after_change else -math.inf
        since = {flow: self.unanswered.get(flow, first_seen) for flow in stale if not flow.has_reply}
        self.unanswered = {flow: moment for flow, moment in since.items() if now - moment < grace}
        if self.unanswered:
            self.retry_at = min(self.retry_at, now + grace)
        return [flow for flow in stale if flow not in self.unanswered]

    def is_ready(self, now: float) -> bool:
        """Whether flows are to be looked at."""
        return (self.is_due or now >= self.retry_at) and not self.is_failed

    def take(self) -> None:
        """Note that flows are being looked at."""
        self.is_after_change, self.is_due, self.retry_at = self.is_due, False, math.inf

    def note_look(self, now: float, *, is_whole: bool) -> None:
        """Have flows looked at again, later each time, where something was left out."""
        if is_whole:
            self.retry_seconds = MIN_RETRY_SECONDS
        else:
            self.retry_at = min(self.retry_at, now + self.retry_seconds)
            self.retry_seconds = min(2 * self.retry_seconds, MAX_RETRY_SECONDS)


class FlowCleaner(SyncObserver):
    """Hears of syncs, and has a thread of its own in ``run``.

    ``reconciled`` is told how many seconds each look at a family's flows took, and how many flows were forgotten.
    """

    def __init__(
        self,
        config: Config,
        local_addresses: Callable[[], frozenset[str]],
        on_reconciled: Callable[[Family, float, int], None] = lambda *_: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
        grace: float = UNANSWERED_GRACE_SECONDS,
    ) -> None:
        """``local_addresses`` tells the machine's, which may all accept NodePorts; it may raise KernelError.

        ``computed`` tells for how many seconds the calling thread has had a processor; ``grace`` is how many seconds a
        flow is left alone that nobody has answered yet.
        """
        self._config = config
        self._local_addresses = local_addresses
        self._reconciled = on_reconciled
        self._clock = clock
        self._computed = thread_time
        self._grace = grace
        self._families = {family: _Heard() for family in Family}
        self._condition = threading.Condition()
        self._stop = threading.Event()
        self._said: dict[Family, str] = {}

    def loop_started(self, family: Family) -> None:
        """Have nothing to do."""

    def sync_queued(self, family: Family) -> None:
        """Have nothing to do."""

    def sync_started(self, family: Family) -> None:
        """Note that the ledger may fall behind."""
        with self._condition:
            self._families[family].is_settled = False

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Note what has changed about UDP Services, and have the flows looked at where that may matter."""
        heard = self._families[report.family]
        changed = report.conntrack_cleanup_required
        for name in report.changed_service_ports:
            if name.protocol == "UDP":
                changed |= heard.ledger.update(name, state.service_port(name), state.endpoints(name))
        changed |= heard.nodeport_ips != state.node.nodeport_ips
        with self._condition:
            heard.nodeport_ips = state.node.nodeport_ips
            heard.is_due |= changed
            heard.is_settled, heard.is_failed = True, False
            heard.successes += 1
            self._condition.notify_all()

    def sync_failed(self, family: Family, seconds: float) -> None:
        """Note that nobody knows which rules are in force."""
        del seconds
        with self._condition:
            self._families[family].is_failed = True
            self._condition.notify_all()

    def run(self, stop: threading.Event) -> None:
        """Look at flows whenever that is due, until ``stop`` is set; a thread of its own calls this."""
        self._stop = stop
        while not stop.is_set():
            due = self._take_due()
            # Not by the clock: a look may wait for a sync, and nobody is held up by that.
            before = self._computed()
            for family in due:
                self._reconcile_and_say(family)
            if due:
                stop.wait((self._computed() - before) * IDLE_FACTOR)

    def _take_due(self) -> list[Family]:
        """Return the families whose flows are to be looked at, waiting a little for one; they are due no longer."""
        with self._condition:
            self._condition.wait_for(self._ready, POLL_SECONDS)
            due = self._ready()
            for family in due:
                self._families[family].take()
            return due

    def _ready(self) -> list[Family]:
        now = self._clock()
        return [family for family, heard in self._families.items() if heard.is_ready(now)]

    def _reconcile_and_say(self, family: Family) -> None:
        trouble = ""
        try:
            self.reconcile(family)
        except KernelError as error:
            trouble = str(error)
        except Exception:
            log.exception("%s: looking at conntrack failed unexpectedly; please report this", family.value)
        if trouble and self._said.get(family) != trouble:
            log.error("%s: %s", family.value, trouble)
        self._said[family] = trouble

    def reconcile(self, family: Family) -> int:
        """Forget the stale flows there are in the calling thread's namespace; return how many those were.

        Nothing is done where syncs fail: it is due again with the next that succeeds. Where some flows could not be
        looked at or forgotten, it is due again after a while. Raises KernelError, in the end where flows were refused.
        """
        heard, is_whole = self._families[family], False
        try:
            listed, forgotten = self._look(family)
            is_whole = listed and not forgotten.error
        finally:
            with self._condition:
                heard.note_look(self._clock(), is_whole=is_whole)
        if forgotten.error:
            raise KernelError(forgotten.error)
        return forgotten.count

    def _look(self, family: Family) -> tuple[bool, DeletedFlows]:
        """Forget stale flows; return whether all flows were listed, and what became of the stale ones."""
        heard, started = self._families[family], self._clock()
        complete, forgotten = True, NOTHING
        if heard.ledger:
            node_port_addresses = self._node_port_addresses(family)

            def is_stale(dialled: bytes, answering: bytes) -> bool:
                return heard.ledger.is_stale(dialled, answering, node_port_addresses)

            with open_flow_table(family.number) as table:
                listing = _listed(family, table, is_stale)
                complete = listing.complete
                if listing.flows and not self._is_settled(heard):
                    return complete, NOTHING
                stale = [flow for flow in listing.flows if is_stale(flow.original_destination, flow.reply_source)]
                forgotten = table.delete(heard.ripe(stale, self._clock(), self._grace))
        seconds = self._clock() - started
        if heard.ledger:
            log.debug("%s: %d stale UDP flows forgotten in %.1f ms", family.value, forgotten.count, seconds * 1e3)
        self._reconciled(family, seconds, forgotten.count)
        return complete, forgotten

    def _is_settled(self, heard: _Heard) -> bool:
        """Wait until the ledger knows what was in force just now; return whether it does. It does not by failures."""
        with self._condition:
            before = heard.successes
            while not heard.is_settled and not heard.is_failed and heard.successes == before:
                if self._stop.is_set():
                    return False
                self._condition.wait(POLL_SECONDS)
            known = heard.is_settled or heard.successes > before
            heard.is_due |= not known
            return known

    def _node_port_addresses(self, family: Family) -> Collection[bytes]:
        heard = self._families[family]
        found: Collection[str] = heard.nodeport_ips
        if self._config.nodeports_on_all_addresses(family) and heard.ledger.has_node_ports:
            local = addresses.of_family(self._local_addresses(), family)
            found = [address for address in local if not addresses.is_loopback(address)]
        return frozenset(map(packed_address, found))


def _listed(family: Family, table: FlowTable, is_stale: Callable[[bytes, bytes], bool]) -> FlowDump:
    listing = table.dump(is_stale)
    if not listing.complete:
        log.debug("%s: the kernel interrupts listing its flows; some were not looked at", family.value)
    return listing
