"""PackedArray: arrays as bytes compare and behave like tuples of targets or of endpoint IDs."""

import socket
import struct
from collections.abc import Sequence
from functools import partial

import pytest

from knft.nft.objects import Target
from knft.nft.packed_array import EndpointIdFormat, PackedArray, TargetFormat
from knft.render.order import stable_order

IPV4 = TargetFormat(struct.Struct(">4s4sH2x"), 4, socket.inet_ntoa)
IDS = EndpointIdFormat(struct.Struct("=4sI"), 4)
FIRST, SECOND = ("10.0.0.1", 80), ("10.0.0.2", 8080)


def _packed(*targets: Target | None) -> PackedArray:
    slots = (
        b"\0" * 12
        if target is None
        else b"mark" + socket.inet_aton(target[0]) + target[1].to_bytes(2, "big") + b"\0" * 2
        for target in targets
    )
    return PackedArray(b"".join(slots), IPV4)


def _packed_ids(*ids: int | None) -> PackedArray:
    slots = (bytes(8) if number is None else b"mark" + struct.pack("=I", number) for number in ids)
    return PackedArray(b"".join(slots), IDS)


@pytest.mark.parametrize("ids", [(), (1,), (2**32 - 2, 1), (None, 7), (0, None, 7)])
def test_packed_array_equals_its_endpoint_ids(ids: Sequence[int | None]) -> None:
    """Another program may have set an ID of 0, which is no gap."""
    packed = _packed_ids(*ids)
    assert packed == ids
    assert ids == packed
    assert packed == _packed_ids(*ids)
    assert tuple(packed) == ids
    assert len(packed) == len(ids)


@pytest.mark.parametrize("targets", [(), (FIRST,), (FIRST, SECOND), (None, SECOND)])
def test_packed_array_equals_its_targets(targets: Sequence[Target | None]) -> None:
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
    packed, decode, audits = _packed(FIRST), TargetFormat.decode, [lambda: tuple(packed)]

    def decode_after_audit(slot_format: TargetFormat) -> object:
        if audits:
            audits.pop()()
        return partial(decode, slot_format)

    monkeypatch.setattr(TargetFormat, "decode", property(decode_after_audit))
    assert tuple(packed) == (FIRST,)
    assert tuple(packed) == (FIRST,)
