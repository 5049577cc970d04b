"""PackedArray: the targets or endpoint IDs of one array as bytes, as they were read from the kernel."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, overload

from msgspec import Struct

from knft.nft.objects import Array, EndpointId, Target

Slots = tuple[Target | EndpointId | None, ...]


class SlotFormat(Protocol):
    """How the values of an array are packed."""

    def decode(self, slots: bytes) -> Slots:
        """Return the values by index."""


class TargetFormat(Struct, frozen=True):
    """How the targets of a family are packed.

    ``slot`` unpacks a mark of ``mark_size`` bytes (zeros if no element has this index), an address and a port.
    """

    slot: struct.Struct
    mark_size: int
    decode_address: Callable[[bytes], str]

    def decode(self, slots: bytes) -> Slots:
        """Return the targets by index."""
        decode, gap = self.decode_address, bytes(self.mark_size)
        return tuple([(decode(raw), port) if mark != gap else None for mark, raw, port in self.slot.iter_unpack(slots)])


class EndpointIdFormat(Struct, frozen=True):
    """How endpoint IDs are packed: ``slot`` unpacks a mark, as that of ``TargetFormat``, and a number."""

    slot: struct.Struct
    mark_size: int

    def decode(self, slots: bytes) -> Slots:
        """Return the endpoint IDs by index."""
        gap = bytes(self.mark_size)
        return tuple([number if mark != gap else None for mark, number in self.slot.iter_unpack(slots)])


class PackedArray(Sequence[Target | EndpointId | None]):
    """An array that is decoded when it is first used.

    250 000 targets take 35 MiB as tuples, and a restart that has nothing to send needs only a few at the same time.
    """

    __slots__ = ("_decoded", "_format", "_slots")

    def __init__(self, slots: bytes, slot_format: SlotFormat) -> None:
        """``slots`` are the packed values by index."""
        self._slots, self._format = slots, slot_format
        self._decoded: Array | None = None

    def _values(self) -> Array:
        slots = self._slots  # Read first: another thread may decode them, store the result, and then drop them.
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = self._format.decode(slots)
            self._slots = b""
        return decoded

    def __eq__(self, other: object) -> bool:
        """Compare with another array, packed or not."""
        return self._values() == (other._values() if isinstance(other, PackedArray) else other)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Return the number of indexes, gaps included."""
        return len(self._values())

    @overload
    def __getitem__(self, index: int) -> Target | EndpointId | None: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    def __getitem__(self, index: int | slice) -> Target | EndpointId | Array | None:
        """Return the value with an index, or those of a slice."""
        return self._values()[index]

    def __iter__(self) -> Iterator[Target | EndpointId | None]:
        """Iterate over the values by index."""
        return iter(self._values())
