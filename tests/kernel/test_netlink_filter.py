"""The socket filter for notifications, interpreted in Python for both byte orders."""

import struct
import sys
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.kernel import nftables_messages
from knft.kernel.netlink_filter import Instruction, table_filter
from knft.kernel.printable_names import printable_name

NEW_CHAIN, NEW_GENERATION = 0xA03, 0xA0F
OWN, OTHER = 0x0102_0304, 0xF1F2_F3F4


SIZES = {0x20: 4, 0x28: 2, 0x30: 1}
"""The number of bytes that each operation loads."""


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
def test_filter_passes_foreign_changes_of_the_table_only(order: str, table: str) -> None:
    """The table names cover all paddings of the last word."""
    filtered = list(table_filter(table, [5, OWN, 6], order))

    def passes(*parts: tuple[int, int, int, str]) -> bool:
        return _passes(filtered, b"".join(_message(order, *part) for part in parts))

    assert passes((NEW_CHAIN, OTHER, 2, table))
    assert passes((NEW_CHAIN, OTHER, 10, table))
    assert passes((NEW_GENERATION, OTHER, 0, ""))
    assert passes((NEW_CHAIN, OTHER, 2, "foreign"), (NEW_CHAIN, OTHER, 2, table))
    assert not passes((NEW_CHAIN, OWN, 2, table))
    assert not passes((NEW_GENERATION, OWN, 0, ""))
    assert not passes((NEW_CHAIN, OWN, 2, "foreign"), (NEW_CHAIN, OWN, 2, table))
    assert not passes((NEW_CHAIN, OTHER, 1, table))
    assert not passes((NEW_CHAIN, OTHER, 2, table + "x"))
    assert not passes((NEW_CHAIN, OTHER, 2, "x" + table))
    assert not passes((NEW_CHAIN, OTHER, 2, "x" * len(table)))


def test_default_is_the_byte_order_of_the_host() -> None:
    assert list(table_filter("knft", [OWN])) == list(table_filter("knft", [OWN], sys.byteorder))


@given(st.binary(max_size=200))
def test_malformed_messages_are_decoded_without_error(buffer: bytes) -> None:
    """Truncated messages and wrong lengths end the decoding."""
    for message in nftables_messages.split(buffer):
        printable_name(message.attribute(3))


@given(st.binary(max_size=40))
def test_names_are_printable(name: bytes) -> None:
    assert printable_name(name).isprintable()
