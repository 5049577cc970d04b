"""Assigns numbers to sticky Service ports and indexes to their endpoints.

A sticky Service port is one with session affinity, called a sticky port in this module. The kernel stores affinity by
client, number of the sticky port and index of the endpoint, and knft never deletes such an entry. If an index were
reassigned too early, clients of the old endpoint would be sent to the new one. So an index stays reserved until the
affinity of its last client has expired. A Service port that loses session affinity keeps its number for that time, with
all indexes reserved, so that old entries have no effect if it becomes sticky again.
"""

import base64
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from knft.model.names import ServicePortName
from knft.nft.objects import Array, Target

NUMBERS = 1 << 16
"""The maximum number of sticky ports, and of indexes per port: both are 16-bit parts of the kernel's keys."""

MAX_RESERVED_INDEXES_PER_ENDPOINT = 8
"""After this many removals, an endpoint that is added again gets its oldest reserved index back.

This limits the indexes that an endpoint reserves if it is removed and added again and again.
"""

MAX_RESERVED_INDEXES, MAX_RESERVED_SHARE = 512, 2
"""A sticky port reserves at most this number of indexes, or this multiple of its endpoints if that is more.

Beyond that, the index that is free first can be reassigned at once: clients of its old endpoint may be sent to another
one.
"""

MAX_RETIRED_PORTS = 1 << 10
"""How many retired sticky ports are kept; beyond that, those that are free first are removed.

Their numbers can then be reassigned at once: clients of the old Service may be sent to one endpoint of another one.
"""


class Slot(Struct, frozen=True):
    """One index of a sticky port: its endpoint, or the last endpoint that had it (None if unknown).

    ``free_at`` is the time in seconds from which another endpoint may get the index; None while an endpoint has it.
    """

    target: Target | None
    free_at: float | None = None


class StickyPort(Struct, frozen=True):
    """A sticky port: its number, its endpoints by index, and the longest affinity timeout it has had, in seconds.

    ``name`` is the Service port's, for logs; ``hash_id`` identifies it in the kernel. ``number`` is its part of the
    affinity set's keys. ``retired`` means that it was deleted or has lost session affinity.
    """

    hash_id: str
    name: str
    number: int
    slots: tuple[Slot, ...] = ()
    longest_timeout: int = 0
    retired: bool = False

    def indexes(self) -> dict[Target, int]:
        """Return the index of each endpoint."""
        return {target: index for index, target in enumerate(self.targets()) if target is not None}

    def targets(self) -> Array:
        """Return the endpoints by index."""
        return tuple(slot.target if slot.free_at is None else None for slot in self.slots)

    def free_at(self) -> int:
        """Return the time from which all reserved indexes are free, in whole seconds; 0 if none is reserved."""
        return math.ceil(max((slot.free_at for slot in self.slots if slot.free_at is not None), default=0))


def sticky_hash_id(name: ServicePortName) -> str:
    """Return the hash ID of a sticky port, its name in the kernel: the beginning of a hash of its name, in base32."""
    full = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}"
    return base64.b32encode(hashlib.sha256(full.encode()).digest()).decode()[:16]


def free_number(hash_id: str, taken: Collection[int]) -> int | None:
    """Return a number for a new sticky port, derived from its hash ID if that one is free; None if all are taken."""
    first = int.from_bytes(hashlib.sha256(hash_id.encode()).digest()[:2])
    candidates = ((first + step) % NUMBERS for step in range(NUMBERS))
    return next((number for number in candidates if number not in taken), None)


def assign(previous: StickyPort, targets: Iterable[Target], timeout: int, now: float) -> StickyPort:
    """Assign an index to each target: its current one, a free one, or a new one.

    ``timeout`` is the Service's, in seconds. ``now`` is in seconds, on the clock of ``Slot.free_at``.
    """
    unassigned = dict.fromkeys(targets)
    endpoint_count = max(len(unassigned), len(previous.indexes()))
    longest = max(timeout, previous.longest_timeout)
    slots: list[Slot] = []
    for slot in previous.slots:
        if slot.free_at is None and slot.target not in unassigned:
            slots.append(Slot(slot.target, now + longest))
            continue
        slots.append(slot)
        if slot.free_at is None and slot.target is not None:
            del unassigned[slot.target]
    _limit_reserved(slots, max(MAX_RESERVED_INDEXES, MAX_RESERVED_SHARE * endpoint_count), now)
    while slots and _is_free(slots[-1], now):
        slots.pop()
    _assign_new_targets(unassigned, slots, now)
    return StickyPort(previous.hash_id, previous.name, previous.number, tuple(slots), longest)


def retire(previous: StickyPort, now: float) -> StickyPort | None:
    """Return a sticky port without affinity and with all indexes reserved; None once all its clients have expired."""
    retired = assign(previous, (), 0, now)
    return structs.replace(retired, retired=True) if retired.slots else None


def _limit_reserved(slots: list[Slot], limit: int, now: float) -> None:
    """Free the indexes that are free first, in place, until at most ``limit`` are reserved."""
    reserved = [index for index, slot in enumerate(slots) if slot.free_at is not None and slot.free_at > now]
    if len(reserved) > limit:
        for index in sorted(reserved, key=lambda index: slots[index].free_at or 0.0)[: len(reserved) - limit]:
            slots[index] = Slot(None, now)


def _is_free(slot: Slot, now: float) -> bool:
    return slot.free_at is not None and slot.free_at <= now


def _assign_new_targets(new_targets: Iterable[Target], slots: list[Slot], now: float) -> None:
    """Assign an index to each new target, in place."""
    reserved = _reserved_indexes(slots)
    free = iter([index for index, slot in enumerate(slots) if _is_free(slot, now)])
    for target in new_targets:
        own = [index for index in reserved.get(target, ()) if slots[index].free_at is not None]
        if len(own) >= MAX_RESERVED_INDEXES_PER_ENDPOINT:
            index = _first_free(own, slots)
        else:
            index = next((number for number in free if slots[number].free_at is not None), len(slots))
        if index < len(slots):
            slots[index] = Slot(target)
        elif index < NUMBERS:
            slots.append(Slot(target))
        else:
            # All indexes are reserved. Take the one that is free first: some clients of its old endpoint may reach this
            # one, but without an index this endpoint would get no clients at all.
            slots[_first_free(range(NUMBERS), slots)] = Slot(target)


def _reserved_indexes(slots: Sequence[Slot]) -> dict[Target, list[int]]:
    """Return the reserved indexes that each endpoint had."""
    reserved: dict[Target, list[int]] = {}
    for index, slot in enumerate(slots):
        if slot.free_at is not None and slot.target is not None:
            reserved.setdefault(slot.target, []).append(index)
    return reserved


def _first_free(indexes: Iterable[int], slots: Sequence[Slot]) -> int:
    """Return the index that is, or will be, free first."""

    def free_at(index: int) -> float:
        left = slots[index].free_at
        return math.inf if left is None else left

    return min(indexes, key=free_at)


class Numbering:
    """Assigns numbers and indexes during one sync.

    ``changed`` holds the sticky ports that the sync changes, by hash ID, None for those it removes. ``without_number``
    are the Service ports for which no number was left.
    """

    def __init__(self, previous: Mapping[str, StickyPort], now: float) -> None:
        """Start from the sticky ports before the sync, ``previous``, by hash ID; ``now`` is in seconds."""
        self._previous = previous
        self._now = now
        self._taken: set[int] | None = None
        self.changed: dict[str, StickyPort | None] = {}
        self.without_number: list[ServicePortName] = []

    def assign(self, name: ServicePortName, targets: Iterable[Target], timeout: int) -> StickyPort | None:
        """Return the sticky port of the Service port ``name`` with these endpoints; None if no number is left."""
        hash_id = sticky_hash_id(name)
        previous = self._previous.get(hash_id)
        if previous is None:
            number = self._new_number(hash_id)
            if number is None:
                self.without_number.append(name)
                return None
            previous = StickyPort(hash_id, str(name), number)
        assigned = assign(previous, targets, timeout, self._now)
        self.changed[hash_id] = assigned
        return assigned

    def retire(self, name: ServicePortName) -> None:
        """Retire the sticky port of a Service port that was deleted or lost session affinity."""
        if self._previous:
            self._retire(sticky_hash_id(name))

    def retire_unassigned(self, preserved: Collection[str] = ()) -> None:
        """Retire all sticky ports that were not assigned, except those whose hash IDs are ``preserved``."""
        for hash_id in sorted(self._previous.keys() - self.changed.keys() - set(preserved)):
            self._retire(hash_id)

    def remove_expired(self) -> None:
        """Remove retired sticky ports whose clients have all expired."""
        for hash_id, port in self._previous.items():
            if hash_id not in self.changed and port.retired and port.free_at() <= self._now:
                self.changed[hash_id] = None

    def limit_retired(self) -> None:
        """Remove the retired sticky ports that are free first, if there are more than ``MAX_RETIRED_PORTS``."""
        if not any(port is not None and port.retired for port in self.changed.values()):
            return
        ports = {**self._previous, **self.changed}
        retired = [port for port in ports.values() if port is not None and port.retired]
        if len(retired) > MAX_RETIRED_PORTS:
            # A part of them at once, because the search looks at all indexes.
            for port in sorted(retired, key=StickyPort.free_at)[: len(retired) - MAX_RETIRED_PORTS * 3 // 4]:
                self.changed[port.hash_id] = None

    def _retire(self, hash_id: str) -> None:
        previous = self._previous.get(hash_id)
        if previous is not None:
            self.changed[hash_id] = retire(previous, self._now)

    def _new_number(self, hash_id: str) -> int | None:
        if self._taken is None:
            self._taken = {sticky.number for sticky in self._previous.values()}
        number = free_number(hash_id, self._taken)
        if number is not None:
            self._taken.add(number)
        return number


def prefer_in_memory(found: Mapping[str, StickyPort], in_memory: Mapping[str, StickyPort]) -> dict[str, StickyPort]:
    """Return the sticky ports ``found`` in the kernel, by hash ID, with the more precise times of ``in_memory``.

    ``in_memory`` are the ports in this process's memory, with a time for each reserved index; the kernel stores one
    time for all. If the stored fields of a port are equal, the port in memory replaces the one found.
    """
    return {hash_id: _prefer_in_memory(port, in_memory.get(hash_id)) for hash_id, port in found.items()}


def _prefer_in_memory(found: StickyPort, in_memory: StickyPort | None) -> StickyPort:
    if in_memory is None or _stored_fields(found) != _stored_fields(in_memory):
        return found
    return in_memory


def adopt_equal_targets(found: Mapping[str, StickyPort], in_memory: Mapping[str, StickyPort]) -> dict[str, StickyPort]:
    """Return the sticky ports of ``in_memory``, by hash ID, but adopt those ``found`` that have the same endpoints.

    Another knft process with the same objects may have given other indexes to the endpoints. If neither process adopted
    those of the other, both would write theirs without end. If endpoints are missing, the record in memory is better.
    """
    return {
        hash_id: _prefer_in_memory(found[hash_id], port)
        if hash_id in found and found[hash_id].indexes().keys() == port.indexes().keys()
        else port
        for hash_id, port in in_memory.items()
    }


def _stored_fields(port: StickyPort) -> tuple[object, ...]:
    return port.number, port.targets(), port.longest_timeout, port.free_at()
