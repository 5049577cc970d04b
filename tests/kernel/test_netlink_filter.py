"""The filter for the kernel, run by hand: for hosts of both byte orders. tests/kernel has it run by the kernel."""

import struct
import sys
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.kernel import nftables_messages
from knft.kernel.netlink_filter import Instruction, table_filter

NEW_CHAIN, NEW_GENERATION = 0xA03, 0xA0F
OWN, OTHER = 0x0102_0304, 0xF1F2_F3F4


SIZES = {0x20: 4, 0x28: 2, 0x30: 1}
"""How many bytes each operation loads."""


def _passes(instructions: Iterable[Instruction], buffer: bytes) -> bool:
    code, accumulator, x, at = list(instructions), 0, 0, 0
    while code[at][0] != 0x06:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation in (0x15, 0x1D):
            at += if_true if accumulator == (constant if operation == 0x15 else x) else if_false
        elif operation == 0x07:
            x = accumulator
        elif operation in SIZES and constant + SIZES[operation] > len(buffer):
            return False
        else:
            loaded = int.from_bytes(buffer[constant : constant + SIZES.get(operation, 0)], "big")
            computed = {0x80: len(buffer), 0x64: accumulator << (constant & 31), 0x4C: accumulator | x}
            accumulator = loaded if operation in SIZES else computed[operation]
    return code[at][3] > 0


def _message(order: str, kind: int, port: int, family: int, table: str) -> bytes:
    sign = "<" if order == "little" else ">"
    body = struct.pack("BBH", family, 0, 0) + nftables_messages.table_attribute(table, order) + bytes(300)
    return struct.pack(f"{sign}IHHII", 16 + len(body), kind, 0, 7, port) + body


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("table", ["knft", "abc", "abcdef", "abcdefg", "a"])
def test_what_passes(order: str, table: str) -> None:
    """The names fill their last word in every way that there is."""
    filtered = list(table_filter(table, [5, OWN, 6], order))

    def passes(*parts: tuple[int, int, int, str]) -> bool:
        return _passes(filtered, b"".join(_message(order, *part) for part in parts))

    assert passes((NEW_CHAIN, OTHER, 2, table))
    assert passes((NEW_CHAIN, OTHER, 10, table))
    assert passes((NEW_GENERATION, OTHER, 0, ""))
    assert passes((NEW_CHAIN, OTHER, 2, "alien"), (NEW_CHAIN, OTHER, 2, table))
    assert not passes((NEW_CHAIN, OWN, 2, table))
    assert not passes((NEW_GENERATION, OWN, 0, ""))
    assert not passes((NEW_CHAIN, OWN, 2, "alien"), (NEW_CHAIN, OWN, 2, table))
    assert not passes((NEW_CHAIN, OTHER, 1, table))
    assert not passes((NEW_CHAIN, OTHER, 2, table + "x"))
    assert not passes((NEW_CHAIN, OTHER, 2, "x" + table))
    assert not passes((NEW_CHAIN, OTHER, 2, "x" * len(table)))


def test_the_host_s_byte_order_is_the_default() -> None:
    assert list(table_filter("knft", [OWN])) == list(table_filter("knft", [OWN], sys.byteorder))


@given(st.binary(max_size=200))
def test_nothing_that_comes_is_too_strange(buffer: bytes) -> None:
    """Messages that are cut short, or say so, end the reading."""
    for message in nftables_messages.split(buffer):
        nftables_messages.printable_name(message.attribute(3))


@given(st.binary(max_size=40))
def test_names_are_fit_for_a_log(name: bytes) -> None:
    assert nftables_messages.printable_name(name).isprintable()
