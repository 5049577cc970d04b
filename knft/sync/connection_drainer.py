"""ConnectionDrainer: ends TCP connections to deleted endpoints of Services with ``knft.dev/drain: reset``.

    sync ──changed ports──▶ LostEndpoints ◀──which are due?── thread "conntrack": dump, delete

It deletes conntrack entries. The client's next packet then begins a new entry, and meets another endpoint or a rule
that answers with a reset (docs/behaviour/draining.md).
"""

import logging
import math
import threading
import time
from collections.abc import Callable

from knft.config import Config
from knft.decide.lost_endpoints import LostConnections, LostEndpoints
from knft.decide.stale_flows import PORT_BYTES
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.conntrack import FlowDump, FlowTable, open_flow_table
from knft.model.names import ServicePortName
from knft.sync.node_port_addresses import node_port_addresses
from knft.sync.observer import SyncObserver
from knft.sync.pass_errors import PassErrors
from knft.sync.report import MAX_NAMES, SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

GRACE_SECONDS = 5.0
"""How long an endpoint must have been deleted: the EndpointSlice controller may move it to another slice of the Service
in two steps."""
RETRY_SECONDS = 1.0
"""First delay before an incomplete pass is repeated; doubles each time."""
MAX_RETRY_SECONDS = 60.0
MAX_REPEAT_SECONDS = 600.0
"""How long after the deletion of an endpoint passes for it are repeated, if the kernel refuses them."""
MAX_FILTERED_DUMPS = 8
"""For more deleted endpoints, one dump of all TCP entries is faster than one dump for each: the kernel looks at all
entries each time."""


class _FamilyState:
    """The lost endpoints of one family, and when to end their connections."""

    def __init__(self) -> None:
        self.lost = LostEndpoints()
        self.quarantined = frozenset[ServicePortName]()
        """The Service ports in quarantine that have changed: ``lost`` is not updated until they leave it."""
        self.nodeport_ips: frozenset[str] = frozenset()
        self.is_current = False
        """Whether ``lost`` equals the rules in force: no sync is running, and the last one succeeded."""
        self.not_before = -math.inf
        """When to repeat an incomplete pass."""
        self.retry_seconds = RETRY_SECONDS

    def is_due(self, now: float, grace: float) -> bool:
        """Whether an endpoint has been lost for long enough."""
        due = self.lost.next_due(grace) if self.lost and self.is_current else None
        return due is not None and max(due, self.not_before) <= now

    def finish_pass(self, deleted_until: float, now: float, *, is_complete: bool) -> None:
        """Forget the endpoints whose connections have ended; schedule a repetition if some may be left."""
        if is_complete:
            self.lost.forget_until(deleted_until)
            self.retry_seconds = RETRY_SECONDS
        else:
            self.lost.forget_until(now - MAX_REPEAT_SECONDS)
            self.not_before = now + self.retry_seconds
            self.retry_seconds = min(2 * self.retry_seconds, MAX_RETRY_SECONDS)


class ConnectionDrainer(SyncObserver):
    """Observes syncs; another thread calls ``run_due_passes``.

    ``on_ended`` is called with the family and the number of ended connections.
    """

    def __init__(
        self,
        config: Config,
        local_addresses: Callable[[], frozenset[str]],
        on_ended: Callable[[Family, int], None] = lambda *_: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """``local_addresses`` returns the machine's addresses, which may all accept NodePorts, or raises KernelError.

        ``grace`` is how long an endpoint must have been deleted, in seconds.
        """
        self._config = config
        self._local_addresses = local_addresses
        self._on_ended = on_ended
        self._clock = clock
        self._grace = grace
        self._families = {family: _FamilyState() for family in Family}
        self._lock = threading.Lock()
        self._errors = PassErrors("ending connections", "could not end connections to deleted endpoints: ")

    def sync_started(self, family: Family) -> None:
        """Record that endpoints may come back."""
        with self._lock:
            self._families[family].is_current = False

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Record the endpoints of the changed Service ports."""
        family_state, now = self._families[report.family], self._clock()
        with self._lock:
            # The rules of a quarantined Service port are still those of its earlier endpoints.
            changed = report.changed_service_ports | family_state.quarantined
            family_state.quarantined = changed & report.quarantined.keys()
            for name in changed - family_state.quarantined:
                port = state.service_port(name) if name.protocol == "TCP" else None
                # The rules of a Service that has become too large are removed, although its endpoints still exist.
                if port is None or not port.resets_connections or name.service in report.too_large:
                    family_state.lost.remove(name)
                else:
                    family_state.lost.update(name, state.frontends(name), state.endpoints(name), now)
            family_state.nodeport_ips = state.node.nodeport_ips
            family_state.is_current = True

    def table_left(self, family: Family) -> None:
        """Record that the rules in force are unknown."""
        self.sync_started(family)

    def run_due_passes(self) -> bool:
        """End the connections that are due, in the calling thread's network namespace; log errors.

        Returns whether anything was due.
        """
        due = [family for family, family_state in self._families.items() if self._is_due(family_state)]
        for family in due:
            self._errors.run(family, self.run_pass)
        return bool(due)

    def _is_due(self, family_state: _FamilyState) -> bool:
        with self._lock:
            return family_state.is_due(self._clock(), self._grace)

    def run_pass(self, family: Family) -> int:
        """End the connections of one family that are due; return how many.

        If some may be left, another pass is scheduled. Raises KernelError if the kernel refuses.
        """
        deleted_until = self._clock() - self._grace
        ended: tuple[int, bool] | None = (0, False)
        try:
            ended = self._end_connections(family, deleted_until)
        finally:
            # Without a result, the pass is due again at the end of the sync that has interrupted it.
            if ended is not None:
                with self._lock:
                    self._families[family].finish_pass(deleted_until, self._clock(), is_complete=ended[1])
        return ended[0] if ended is not None else 0

    def _end_connections(self, family: Family, deleted_until: float) -> tuple[int, bool] | None:
        """Return how many connections were ended, and whether these are all; None if a sync has begun."""
        lost = self._lost(family, deleted_until)
        if lost is None:
            return None
        addresses = self._node_port_addresses(family) if lost.has_node_port() else frozenset()
        with open_flow_table(family.number, "TCP") as table:
            dump = _dump(family, table, lost, addresses)
            # An endpoint may be back since the dump began, and some of the listed connections may be new.
            lost = self._lost(family, deleted_until)
            if lost is None:
                return None
            flows = [
                flow for flow in dump.flows if lost.contain(flow.original_destination, flow.reply_source, addresses)
            ]
            deleted = table.delete(flows)
        if deleted.count:
            self._on_ended(family, deleted.count)
            names = _listed(lost.names)
            log.info("%s: ended %d TCP connections to deleted endpoints of %s", family.value, deleted.count, names)
        if deleted.error:
            raise KernelError(deleted.error)
        return deleted.count, dump.complete

    def _lost(self, family: Family, deleted_until: float) -> LostConnections | None:
        """Return the connections to end; None during a sync and after one that failed: endpoints may be back."""
        family_state = self._families[family]
        with self._lock:
            return family_state.lost.lost_until(deleted_until) if family_state.is_current else None

    def _node_port_addresses(self, family: Family) -> frozenset[bytes]:
        return node_port_addresses(family, self._config, self._families[family].nodeport_ips, self._local_addresses)


def _listed(names: tuple[ServicePortName, ...]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(map(str, names[:MAX_NAMES])) + (f" and {more} more" if more > 0 else "")


def _dump(family: Family, table: FlowTable, lost: LostConnections, node_port_addresses: frozenset[bytes]) -> FlowDump:
    def is_lost(original_destination: bytes, reply_source: bytes) -> bool:
        return lost.contain(original_destination, reply_source, node_port_addresses)

    endpoints = sorted(lost.all_endpoints())
    if family is Family.IPV6:
        # The kernel's filter has only the port of IPv6 endpoints (knft.kernel.conntrack_messages).
        endpoints = list({endpoint[-PORT_BYTES:]: endpoint for endpoint in endpoints}.values())
    if len(endpoints) > MAX_FILTERED_DUMPS:
        return table.dump(is_lost)
    dumps = [table.dump(is_lost, endpoint) for endpoint in endpoints]
    return FlowDump([flow for each in dumps for flow in each.flows], all(each.complete for each in dumps))
