"""Checks connections that were made while endpoints changed against the endpoints of that time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.support.lab.clients import NONE, Connection
from tests.support.packets.churn import Backend
from tests.support.packets.frontends import Frontend
from tests.support.packets.timeline import Timeline

_Client = tuple[str, str, str, int, str]

MAX_ASSIGNED_LATER = 10
"""How many clients may be assigned again after a connection during which an endpoint was removed.

A packet that meets the commit between two lookups goes to the endpoint that takes the index, without an affinity entry
(docs/design/sticky-layout.md#limits). That is rare: one connection of half a million.
"""


class _Answer(NamedTuple):
    """The last connection of a sticky client."""

    connection: Connection
    answered_by: Backend
    met_removal: bool
    """Whether an endpoint was removed during the connection, and the client had to be assigned to one."""


def _has_removal(pools: Sequence[frozenset[Backend]]) -> bool:
    return any(not before <= after for before, after in pairwise(pools))


class ConnectionChecker:
    """Checks the connections of each client in their order.

    ``faults`` are descriptions, ``seen`` counts observations by name, ``answered`` counts answers by frontend.
    """

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        """Take the pools of each Service over time."""
        self._timelines = timelines
        self._last: dict[_Client, _Answer] = {}
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
        timeline = self._timelines[frontend.service.name]
        pools = timeline.during(connection.started, connection.ended)
        last = self._last.get(client)
        has_moved = last is None or not all(last.answered_by in pool for pool in pools)
        self._last[client] = _Answer(connection, answered_by, met_removal=has_moved and _has_removal(pools))
        last = last or self._last[client]
        former = last.answered_by
        if all(former in pool for pool in timeline.during(last.connection.started, connection.ended)):
            self.seen["stayed"] += 1
            if answered_by != former:
                self._check_other_endpoint(frontend, connection, last)
        elif answered_by != former:
            self.seen["moved"] += 1

    def _check_other_endpoint(self, frontend: Frontend, connection: Connection, last: _Answer) -> None:
        if not last.met_removal:
            self._add_fault(f"{last.answered_by} is still an endpoint", frontend, connection)
            return
        self.seen["assigned later"] += 1
        if self.seen["assigned later"] > MAX_ASSIGNED_LATER:
            self._add_fault("many clients were assigned later", frontend, connection)

    def _add_fault(self, reason: str, frontend: Frontend, connection: Connection) -> None:
        self.seen["faults"] += 1
        self.faults.append(f"{reason}: {frontend}: {connection}")
