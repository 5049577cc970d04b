"""Numbers of sticky ports and indexes of their endpoints: given for life, and not to another before all is forgotten.

A client is remembered in the kernel under the port's number and the endpoint's index, and nothing is ever deleted
from there. So whoever was given an index too early would inherit clients. A port that is sticky no longer keeps its
number as long, with every index left: should it come back, its clients start afresh.
"""

import base64
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from knft.model.names import ServicePortName
from knft.nft.objects import Array, Target

NUMBERS = 1 << 16
"""How many sticky ports there can be, and how many indexes of one: both are 16 bits wide in the kernel's keys."""

FLAPS = 8
"""How many left indexes an endpoint may wait for before it gets back the oldest: one that flaps needs no more."""


class Slot(Struct, frozen=True):
    """One index of a sticky port: its endpoint, or the one that left it (None: not known).

    ``free_at`` is the time from which another endpoint may have it, in seconds; None where it is not left.
    """

    target: Target | None
    free_at: float | None = None


class StickyPort(Struct, frozen=True):
    """The number of a sticky port, its endpoints by index, and the longest timeout it has had, in seconds.

    ``name`` is the Service port's, for people; ``identity`` is what the kernel knows it by. One that is ``retired`` is
    sticky no longer.
    """

    identity: str
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
        """Return the time from which every index that was left is free, in whole seconds; 0 where none was left."""
        return math.ceil(max((slot.free_at for slot in self.slots if slot.free_at is not None), default=0))


def identity(name: ServicePortName) -> str:
    """Return what a sticky port is known by in the kernel: the beginning of a hash, in base32."""
    full = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}"
    return base64.b32encode(hashlib.sha256(full.encode()).digest()).decode()[:16]


def free_number(port_identity: str, taken: Collection[int]) -> int | None:
    """Return a number for a new sticky port, None where all are taken; the same for the same name, if it is free."""
    first = int.from_bytes(hashlib.sha256(port_identity.encode()).digest()[:2])
    candidates = ((first + step) % NUMBERS for step in range(NUMBERS))
    return next((number for number in candidates if number not in taken), None)


def assign(previous: StickyPort, targets: Iterable[Target], timeout: int, now: float) -> StickyPort:
    """Give every target an index: its own, or a free one that nobody is remembered at, or a new one.

    ``timeout`` is the Service's, in seconds; ``now`` is in seconds, on the clock of ``Slot.free_at``.
    """
    wanted = dict.fromkeys(targets)
    longest = max(timeout, previous.longest_timeout)
    slots: list[Slot] = []
    for slot in previous.slots:
        if slot.free_at is None and slot.target not in wanted:
            slots.append(Slot(slot.target, now + longest))
            continue
        slots.append(slot)
        if slot.free_at is None and slot.target is not None:
            del wanted[slot.target]
    while slots and _is_free(slots[-1], now):
        slots.pop()
    _settle(wanted, slots, now)
    return StickyPort(previous.identity, previous.name, previous.number, tuple(slots), longest)


def retire(previous: StickyPort, now: float) -> StickyPort | None:
    """Return a port that is sticky no longer, every index left; None once all its clients are forgotten."""
    left = assign(previous, (), 0, now)
    return structs.replace(left, retired=True) if left.slots else None


def _is_free(slot: Slot, now: float) -> bool:
    return slot.free_at is not None and slot.free_at <= now


def _settle(newcomers: Iterable[Target], slots: list[Slot], now: float) -> None:
    """Give each newcomer an index, in place."""
    left = _left_by(slots)
    free = iter([index for index, slot in enumerate(slots) if _is_free(slot, now)])
    for target in newcomers:
        own = [index for index in left.get(target, ()) if slots[index].free_at is not None]
        if len(own) >= FLAPS:
            index = _first_free(own, slots)
        else:
            index = next((number for number in free if slots[number].free_at is not None), len(slots))
        if index < len(slots):
            slots[index] = Slot(target)
        elif index < NUMBERS:
            slots.append(Slot(target))
        else:
            # Better that some clients are led to another endpoint than that this one gets none.
            slots[_first_free(range(NUMBERS), slots)] = Slot(target)


def _left_by(slots: Sequence[Slot]) -> dict[Target, list[int]]:
    """Return the indexes that each endpoint has left."""
    left: dict[Target, list[int]] = {}
    for index, slot in enumerate(slots):
        if slot.free_at is not None and slot.target is not None:
            left.setdefault(slot.target, []).append(index)
    return left


def _first_free(indexes: Iterable[int], slots: Sequence[Slot]) -> int:
    """Return the one of these indexes that is, or will be, free first."""

    def free_at(index: int) -> float:
        left = slots[index].free_at
        return math.inf if left is None else left

    return min(indexes, key=free_at)


class Numbering:
    """The sticky ports during one sync: what was known before, and what the sync makes of it."""

    def __init__(self, known: Mapping[str, StickyPort], now: float) -> None:
        """Start from ``known``, by identity, which stays as it is; ``now`` is in seconds."""
        self._known = known
        self._now = now
        self._taken: set[int] | None = None
        self.changed: dict[str, StickyPort | None] = {}
        self.refused: list[ServicePortName] = []

    def assign(self, name: ServicePortName, targets: Iterable[Target], timeout: int) -> StickyPort | None:
        """Return the sticky port of that name with these endpoints; None where there is no number left."""
        port_identity = identity(name)
        previous = self._known.get(port_identity)
        if previous is None:
            number = self._new_number(port_identity)
            if number is None:
                self.refused.append(name)
                return None
            previous = StickyPort(port_identity, str(name), number)
        assigned = assign(previous, targets, timeout, self._now)
        self.changed[port_identity] = assigned
        return assigned

    def retire(self, name: ServicePortName) -> None:
        """Note that a Service port is not sticky, or gone."""
        if self._known:
            self._retire(identity(name))

    def retire_others(self, spared: Collection[str] = ()) -> None:
        """Note that all that were not assigned are gone, but for ``spared`` identities."""
        for port_identity in sorted(self._known.keys() - self.changed.keys() - set(spared)):
            self._retire(port_identity)

    def tidy(self) -> None:
        """Note which ports are forgotten by all their clients."""
        for port_identity, port in self._known.items():
            if port_identity not in self.changed and port.retired and port.free_at() <= self._now:
                self.changed[port_identity] = None

    def _retire(self, port_identity: str) -> None:
        previous = self._known.get(port_identity)
        if previous is not None:
            self.changed[port_identity] = retire(previous, self._now)

    def _new_number(self, port_identity: str) -> int | None:
        if self._taken is None:
            self._taken = {sticky.number for sticky in self._known.values()}
        number = free_number(port_identity, self._taken)
        if number is not None:
            self._taken.add(number)
        return number


def trusted(found: Mapping[str, StickyPort], remembered: Mapping[str, StickyPort]) -> dict[str, StickyPort]:
    """Return the sticky ports that the kernel holds, each as it is remembered where that is the same port.

    The kernel keeps one time for all indexes that were left; this process remembers each one's own.
    """
    return {name: _better(port, remembered.get(name)) for name, port in found.items()}


def _better(found: StickyPort, remembered: StickyPort | None) -> StickyPort:
    if remembered is None or _in_kernel(found) != _in_kernel(remembered):
        return found
    return remembered


def _in_kernel(port: StickyPort) -> tuple[object, ...]:
    return port.number, port.targets(), port.longest_timeout, port.free_at()
