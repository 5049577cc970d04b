"""PackedArray: arrays as bytes compare and behave like tuples of targets."""

import socket
import struct
from functools import partial

import pytest

from knft.nft.objects import Array
from knft.nft.packed_array import PackedArray, SlotFormat
from knft.render.order import stable_order

IPV4 = SlotFormat(struct.Struct(">4s4sH2x"), 4, socket.inet_ntoa)
FIRST, SECOND = ("10.0.0.1", 80), ("10.0.0.2", 8080)


def _packed(*targets: tuple[str, int] | None) -> PackedArray:
    slots = (
        b"\0" * 12
        if target is None
        else b"mark" + socket.inet_aton(target[0]) + target[1].to_bytes(2, "big") + b"\0" * 2
        for target in targets
    )
    return PackedArray(b"".join(slots), IPV4)


@pytest.mark.parametrize("targets", [(), (FIRST,), (FIRST, SECOND), (None, SECOND)])
def test_packed_array_equals_its_targets(targets: Array) -> None:
    packed = _packed(*targets)
    assert packed == targets
    assert targets == packed
    assert packed == _packed(*targets)
    assert tuple(packed) == targets
    assert len(packed) == len(targets)


def test_packed_array_differs_from_other_targets() -> None:
    assert _packed(FIRST) != (SECOND,)
    assert _packed(FIRST) != (FIRST, SECOND)
    assert _packed(None, FIRST) != (FIRST,)


def test_endpoints_keep_their_order_in_a_packed_array() -> None:
    assert stable_order(_packed(SECOND, FIRST), (FIRST, SECOND)) == (SECOND, FIRST)
    assert stable_order(_packed(SECOND, None, FIRST), (FIRST, SECOND)) == (SECOND, FIRST)


def test_slice_of_a_packed_array_is_a_tuple_of_targets() -> None:
    packed = _packed(FIRST, None, SECOND)
    assert packed[0] == FIRST
    assert packed[1:] == (None, SECOND)


def test_two_threads_may_decode_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit compares arrays while a sync does: here it decodes one while the sync begins to."""
    packed, decode, audits = _packed(FIRST), SlotFormat.decode, [lambda: tuple(packed)]

    def decode_after_audit(slot_format: SlotFormat) -> object:
        if audits:
            audits.pop()()
        return partial(decode, slot_format)

    monkeypatch.setattr(SlotFormat, "decode", property(decode_after_audit))
    assert tuple(packed) == (FIRST,)
    assert tuple(packed) == (FIRST,)
