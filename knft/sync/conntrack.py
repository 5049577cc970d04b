"""FlowCleaner: forgets the UDP flows that lead where no endpoint is any more, beside the syncs (F.1).

    synced ──changed ports──▶ FlowLedger ◀──is it stale?── a thread: list, wait for a settled ledger, forget

Rules are in force before the ledger knows of their endpoints. A flow that was listed meanwhile may lead to one of them,
so it is judged again once a sync has succeeded that had begun before.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection

from knft.config import Config
from knft.decide.stale_flows import FlowLedger, packed
from knft.errors import KernelError
from knft.kernel.conntrack import FlowTable, flow_table
from knft.kernel.flow_messages import Flow
from knft.model import addresses
from knft.model.names import Family
from knft.sync.observer import Observer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

LOOK_SECONDS = 0.5
"""How long it takes to notice that one has to stop."""
REST = 4.0
"""So many times as long as it took, nothing is done afterwards: at most a fifth of a processor is used, whatever comes.
"""

_FAMILIES = {Family.IPV4: int(socket.AF_INET), Family.IPV6: int(socket.AF_INET6)}


class _Heard:
    """What was heard of one family's syncs."""

    def __init__(self) -> None:
        self.ledger = FlowLedger()
        self.nodeport_ips: frozenset[str] = frozenset()
        self.is_due = False
        """Whether flows may have become stale since they were looked at."""
        self.is_settled = False
        """Whether the ledger knows every rule that is in force: no sync is under way, and the last has succeeded."""
        self.is_failed = False
        """Whether the last sync has failed: nobody knows then what is in force."""
        self.successes = 0


class FlowCleaner(Observer):
    """Hears of syncs, and has a thread of its own in ``run``.

    ``reconciled`` is told how many seconds each look at a family's flows took, and how many flows were forgotten.
    """

    def __init__(
        self,
        config: Config,
        local_addresses: Callable[[], frozenset[str]],
        reconciled: Callable[[Family, float, int], None] = lambda *_: None,
    ) -> None:
        """``local_addresses`` tells the machine's, which may all accept NodePorts; it may raise KernelError."""
        self._config = config
        self._local_addresses = local_addresses
        self._reconciled = reconciled
        self._heard = {family: _Heard() for family in Family}
        self._condition = threading.Condition()
        self._stop = threading.Event()
        self._said: dict[Family, str] = {}

    def looping(self, family: Family) -> None:
        """Have nothing to do."""

    def queued(self, family: Family) -> None:
        """Have nothing to do."""

    def begun(self, family: Family) -> None:
        """Note that the ledger may fall behind."""
        with self._condition:
            self._heard[family].is_settled = False

    def synced(self, report: SyncReport, state: ServiceState) -> None:
        """Note what has changed about UDP Services, and have the flows looked at where that may matter."""
        heard = self._heard[report.family]
        changed = report.conntrack_cleanup_required
        for name in report.changed:
            if name.protocol == "UDP":
                changed |= heard.ledger.note(name, state.service_port(name), state.endpoints(name))
        changed |= heard.nodeport_ips != state.node.nodeport_ips
        with self._condition:
            heard.nodeport_ips = state.node.nodeport_ips
            heard.is_due |= changed
            heard.is_settled, heard.is_failed = True, False
            heard.successes += 1
            self._condition.notify_all()

    def failed(self, family: Family, seconds: float) -> None:
        """Note that nobody knows which rules are in force."""
        del seconds
        with self._condition:
            self._heard[family].is_failed = True
            self._condition.notify_all()

    def run(self, stop: threading.Event) -> None:
        """Look at flows whenever that is due, until ``stop`` is set; a thread of its own calls this."""
        self._stop = stop
        while not stop.is_set():
            started = time.monotonic()
            for family in self._take_due():
                self._reconcile_and_say(family)
            stop.wait((time.monotonic() - started) * REST)

    def _take_due(self) -> list[Family]:
        """Return the families whose flows are to be looked at, waiting a little for one; they are due no longer."""
        with self._condition:
            self._condition.wait_for(lambda: any(map(self._is_ready, self._heard.values())), LOOK_SECONDS)
            due = [family for family, heard in self._heard.items() if self._is_ready(heard)]
            for family in due:
                self._heard[family].is_due = False
            return due

    @staticmethod
    def _is_ready(heard: _Heard) -> bool:
        return heard.is_due and not heard.is_failed

    def _reconcile_and_say(self, family: Family) -> None:
        try:
            self.reconcile(family)
        except KernelError as error:
            if self._said.get(family) != str(error):
                log.warning("%s: %s", family.value, error)
            self._said[family] = str(error)
        except Exception:
            log.exception("%s: looking at conntrack failed unexpectedly; please report this", family.value)
        else:
            self._said.pop(family, None)

    def reconcile(self, family: Family) -> int:
        """Forget the stale flows there are in the calling thread's namespace; return how many those were.

        Nothing is done where syncs fail: it is due again with the next that succeeds. Raises KernelError.
        """
        heard, started = self._heard[family], time.monotonic()
        count = 0
        if heard.ledger:
            node_port_addresses = self._node_port_addresses(family)

            def is_stale(dialled: bytes, answering: bytes) -> bool:
                return heard.ledger.is_stale(dialled, answering, node_port_addresses)

            with flow_table(_FAMILIES[family]) as table:
                listing = table.find(is_stale)
                if not listing.complete:
                    log.debug("%s: the kernel interrupts listing its flows; some were not looked at", family.value)
                if listing.flows and not self._is_settled(heard):
                    return 0
                count = self._forget(family, table, [flow for flow in listing.flows if _judge(flow, is_stale)])
        self._reconciled(family, time.monotonic() - started, count)
        return count

    def _is_settled(self, heard: _Heard) -> bool:
        """Wait until the ledger knows what was in force just now; return whether it does. It does not by failures."""
        with self._condition:
            before = heard.successes
            while not heard.is_settled and not heard.is_failed and heard.successes == before:
                if self._stop.is_set():
                    return False
                self._condition.wait(LOOK_SECONDS)
            known = heard.is_settled or heard.successes > before
            heard.is_due |= not known
            return known

    def _forget(self, family: Family, table: FlowTable, flows: list[Flow]) -> int:
        forgotten = table.forget(flows)
        if forgotten.refusal:
            log.error("%s: %s", family.value, forgotten.refusal)
        if forgotten.count:
            log.debug("%s: %d stale UDP flows forgotten", family.value, forgotten.count)
        return forgotten.count

    def _node_port_addresses(self, family: Family) -> Collection[bytes]:
        heard = self._heard[family]
        found: Collection[str] = heard.nodeport_ips
        if self._config.nodeports_everywhere(family) and heard.ledger.has_node_ports:
            local = addresses.of_family(self._local_addresses(), family)
            found = [address for address in local if not addresses.is_loopback(address)]
        return frozenset(map(packed, found))


def _judge(flow: Flow, is_stale: Callable[[bytes, bytes], bool]) -> bool:
    return is_stale(flow.dialled, flow.answering)
