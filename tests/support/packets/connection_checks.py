"""Checks connections that were made while endpoints changed against the endpoints of that time."""

from collections import Counter
from collections.abc import Mapping

from tests.support.lab.clients import NONE, Connection
from tests.support.packets.churn import Backend
from tests.support.packets.frontends import Frontend
from tests.support.packets.timeline import Timeline

_Client = tuple[str, str, str, int, str]


class ConnectionChecker:
    """Checks the connections of each client in their order.

    ``faults`` are descriptions, ``seen`` counts observations by name, ``answered`` counts answers by frontend.
    """

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        """Take the pools of each Service over time."""
        self._timelines = timelines
        self._last: dict[_Client, tuple[Connection, Backend]] = {}
        self.faults: list[str] = []
        self.seen: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def check(self, frontend: Frontend, connection: Connection) -> None:
        """Check one connection."""
        if connection.error != NONE:
            self._add_fault("no answer", frontend, connection)
            return
        if connection.retransmissions:
            self._add_fault("retransmission", frontend, connection)
        self.answered[str(frontend)] += 1
        pools = self._timelines[frontend.service.name].during(connection.started, connection.ended)
        self.seen["during a commit"] += len(pools) > 1
        answered_by = Backend(connection.server, connection.port)
        if not any(answered_by in pool for pool in pools):
            self._add_fault("not an endpoint", frontend, connection)
        if frontend.is_local and not answered_by.is_local:
            self._add_fault("remote endpoint with policy Local", frontend, connection)
        if frontend.service.is_sticky:
            self._check_affinity(frontend, connection, answered_by)

    def _check_affinity(self, frontend: Frontend, connection: Connection, answered_by: Backend) -> None:
        """A sticky client is answered by the same endpoint as before, unless that was removed in between."""
        client = (frontend.client, frontend.service.name, connection.source, frontend.version, frontend.protocol)
        last, former = self._last.get(client, (connection, answered_by))
        self._last[client] = connection, answered_by
        if all(
            former in pool for pool in self._timelines[frontend.service.name].during(last.started, connection.ended)
        ):
            self.seen["stayed"] += 1
            if answered_by != former:
                self._add_fault(f"{former} is still an endpoint", frontend, connection)
        elif answered_by != former:
            self.seen["moved"] += 1

    def _add_fault(self, reason: str, frontend: Frontend, connection: Connection) -> None:
        self.seen["faults"] += 1
        self.faults.append(f"{reason}: {frontend}: {connection}")
