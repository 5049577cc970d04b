"""ConnectionTotals: adds up what the kernel counts for each frontend, for each Service port.

The kernel counts in elements of sets, one for each frontend. An element begins at 0 when it is created, so the totals
grow by the difference between two readings.
"""

import socket
from collections.abc import Iterable, Mapping

from msgspec import Struct

from knft.families import Family, family_of
from knft.kernel.counter_reader import Counts
from knft.model.names import ServicePortName
from knft.model.plan import Frontend
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NUMBERS
from knft.render import names

MAX_SERVICE_PORTS = 10_000
"""The most Service ports with totals, so that the number of series is limited."""
MAX_RELEASED = 40_000
"""The most released frontends of a family; more are only possible while the kernel refuses readings."""

_Key = tuple[Family, bytes]
"""A family, and the key of a frontend's elements as the kernel sends it; those of NodePorts are shorter."""

_OUTCOMES = {
    names.CONNECTIONS: 0,
    names.NODEPORT_CONNECTIONS: 0,
    names.REJECTED: 1,
    names.NODEPORT_REJECTED: 1,
    names.DROPPED: 2,
    names.NODEPORT_DROPPED: 2,
}
"""The index of what a set counts in the numbers of a Service port or frontend."""


_OUTCOME_COUNT = 3


class Connections(Struct, frozen=True):
    """How many connections were attempted, and how many of these were rejected or dropped."""

    new: int = 0
    rejected: int = 0
    dropped: int = 0

    def __add__(self, other: "Connections") -> "Connections":
        """Return the sums."""
        return Connections(self.new + other.new, self.rejected + other.rejected, self.dropped + other.dropped)


class ConnectionTotals:
    """The connections of each Service port since the kernel created the elements of its frontends; not thread-safe."""

    def __init__(self, limit: int = MAX_SERVICE_PORTS, max_released: int = MAX_RELEASED) -> None:
        """Start without Service ports; at most ``limit`` get totals, those that were known first."""
        self._limit = limit
        self._max_released = max_released
        self._frontends: dict[tuple[Family, ServicePortName], dict[bytes, Frontend]] = {}
        self._owners: dict[_Key, ServicePortName] = {}
        self._totals: dict[ServicePortName, list[int]] = {}
        self._by_frontend: dict[_Key, list[int]] = {}
        self._not_counted: dict[ServicePortName, None] = {}
        """Service ports without totals, because there are too many, by when they were known first."""
        self._unread: set[ServicePortName] = set()
        """Service ports without a reading: their totals may be less than those of an earlier process."""
        self._last: dict[tuple[Family, int], Counts] = {(f, i): {} for f in Family for i in range(_OUTCOME_COUNT)}
        """What each element had at the last reading, by family and outcome."""
        self._released: dict[Family, dict[bytes, None]] = {family: {} for family in Family}
        """Frontends that no Service port has any more, and whose elements may still exist; the oldest first."""
        self._is_reading = False
        self._changed_while_reading: set[_Key] = set()
        """Frontends that got or lost an owner since ``begin_reading``: the reading may have their former elements."""

    @property
    def not_counted(self) -> int:
        """How many Service ports have no totals, because there are too many."""
        return len(self._not_counted)

    def set_frontends(self, family: Family, changed: Mapping[ServicePortName, Iterable[Frontend]]) -> None:
        """Replace the frontends that Service ports have in a family."""
        released: list[tuple[ServicePortName, bytes]] = []
        for name, frontends in changed.items():
            before = self._frontends.pop((family, name), {})
            after = {_raw_key(frontend): frontend for frontend in frontends}
            if after:
                self._frontends[family, name] = after
                self._start_counting(name)
            for raw in after:
                self._own(family, raw, name)
            released += [(name, raw) for raw in before.keys() - after.keys()]
        # Last, because an element that passes to another Service port in the same sync stays in the kernel.
        for name, raw in released:
            if self._owners.get((family, raw)) == name:
                self._release(family, raw)
        for name in changed:
            if not any((each, name) in self._frontends for each in Family):
                self._remove(name)

    def _start_counting(self, name: ServicePortName) -> None:
        if name in self._totals or name in self._not_counted:
            return
        if len(self._totals) >= self._limit:
            self._not_counted[name] = None
            return
        self._totals[name] = [0] * _OUTCOME_COUNT
        self._unread.add(name)

    def _remove(self, name: ServicePortName) -> None:
        self._not_counted.pop(name, None)
        self._unread.discard(name)
        if self._totals.pop(name, None) is not None and self._not_counted:
            counted = next(iter(self._not_counted))
            del self._not_counted[counted]
            self._start_counting(counted)

    def _own(self, family: Family, raw: bytes, name: ServicePortName) -> None:
        if self._owners.get((family, raw)) != name:
            self._owners[family, raw] = name
            self._by_frontend.pop((family, raw), None)
            self._released[family].pop(raw, None)
            self._note_change(family, raw)

    def _release(self, family: Family, raw: bytes) -> None:
        del self._owners[family, raw]
        self._by_frontend.pop((family, raw), None)
        self._forget_last(family, raw)
        self._note_change(family, raw)
        released = self._released[family]
        released[raw] = None
        if len(released) > self._max_released:
            oldest = next(iter(released))
            del released[oldest]
            self._forget_last(family, oldest)

    def _forget_last(self, family: Family, raw: bytes) -> None:
        for outcome in range(_OUTCOME_COUNT):
            self._last[family, outcome].pop(raw, None)

    def _note_change(self, family: Family, raw: bytes) -> None:
        if self._is_reading:
            self._changed_while_reading.add((family, raw))

    def begin_reading(self) -> None:
        """Ignore in the next readings the frontends whose owners change from now on."""
        self._is_reading = True
        self._changed_while_reading.clear()

    def add_readings(self, readings: Mapping[Family, Mapping[str, Counts]]) -> None:
        """Add what the kernel has counted since the last reading, by family and set."""
        for family, sets in readings.items():
            for name, counts in sets.items():
                self._add_set(family, _OUTCOMES[name], counts)
            self._forget_removed(family, sets)
        waiting = {self._owners.get(key) for key in self._changed_while_reading}
        self._unread = {
            name
            for name in self._unread
            if name in waiting or not all(family in readings for family in Family if (family, name) in self._frontends)
        }
        self._is_reading = False
        self._changed_while_reading.clear()

    def _forget_removed(self, family: Family, sets: Mapping[str, Counts]) -> None:
        """Forget released frontends without elements: one that is created again counts from 0."""
        removed = [
            raw
            for raw in self._released[family]
            if (family, raw) not in self._changed_while_reading and not any(raw in counts for counts in sets.values())
        ]
        for raw in removed:
            del self._released[family][raw]
            self._forget_last(family, raw)

    def _add_set(self, family: Family, outcome: int, counts: Counts) -> None:
        last, released, changed = self._last[family, outcome], self._released[family], self._changed_while_reading
        for raw, packets in counts.items():
            before = last.get(raw, 0)
            if packets == before or (family, raw) in changed:
                continue
            name = self._owners.get((family, raw))
            if name is None:
                # Either the sync that created the element has not ended, or the element was not removed.
                if raw in released:
                    last[raw] = packets
                continue
            total = self._totals.get(name)
            if total is None:
                continue
            # If the element was created again, it has counted from 0.
            growth = packets - before if packets > before else packets
            last[raw] = packets
            total[outcome] += growth
            self._by_frontend.setdefault((family, raw), [0] * _OUTCOME_COUNT)[outcome] += growth

    def by_service_port(self) -> dict[ServicePortName, Connections]:
        """Return the totals of all Service ports that were read at least once."""
        return {name: Connections(*total) for name, total in self._totals.items() if name not in self._unread}

    def by_frontend(self) -> list[tuple[Family, ServicePortName, Frontend, Connections]]:
        """Return the totals of all frontends that the Service ports with totals have now."""
        return [
            (family, name, frontend, Connections(*self._by_frontend.get((family, raw), ())))
            for (family, name), frontends in self._frontends.items()
            if name in self._totals and name not in self._unread
            for raw, frontend in frontends.items()
        ]


def _raw_key(frontend: Frontend) -> bytes:
    """Return the key of a frontend's elements as the kernel sends it."""
    protocol = PROTOCOL_NUMBERS[NFT_PROTOCOLS[frontend.protocol]]
    port = bytes([protocol, 0, 0, 0]) + frontend.port.to_bytes(2, "big") + b"\0\0"
    if frontend.address is None:
        return port
    return socket.inet_pton(family_of(frontend.address).number, frontend.address) + port
