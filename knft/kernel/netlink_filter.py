"""A filter in the kernel for a socket that hears nf_tables' notifications, so that others' changes cost nothing.

It is classic BPF, run on each buffer before it is queued. It sees a buffer's first message alone, as it has no loops.
So a buffer passes that holds several; all of them come from one transaction, and its port id stands in the first.
"""

import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Iterator

from knft.kernel.messages import FAMILIES, NEW_GENERATION, table_attribute

# Operations of linux/bpf_common.h; there is an accumulator and a register X.
_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_LOAD_HALF = 0x28
_LOAD_BYTE = 0x30
_LOAD_BUFFER_LENGTH = 0x80  # BPF_LD | BPF_W | BPF_LEN
_SHIFT_LEFT = 0x64  # BPF_ALU | BPF_LSH | BPF_K
_OR_X = 0x4C  # BPF_ALU | BPF_OR | BPF_X
_COPY_TO_X = 0x07  # BPF_MISC | BPF_TAX
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_EQUAL_X = 0x1D  # BPF_JMP | BPF_JEQ | BPF_X
_RETURN = 0x06  # BPF_RET | BPF_K
_PASS = 0xFFFF_FFFF
_DROP = 0

# Where things are in a buffer; knft.kernel.messages draws it.
_LENGTH, _KIND, _PORT, _FAMILY, _ATTRIBUTES = 0, 4, 12, 16, 20

_SO_ATTACH_FILTER = 26  # the same on every architecture that Kubernetes runs on; the socket module lacks it

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip where a comparison holds and where it does not, and a constant."""


def program(table: str, own_ports: Iterable[int], byte_order: str = sys.byteorder) -> Iterator[Instruction]:
    """Yield the filter: it drops what ``own_ports`` did, and messages about anything but ``table``.

    What passes: others' new generations, messages about the table in IPv4 or IPv6, and buffers with several messages.
    """
    yield (_LOAD_WORD, 0, 0, _PORT)
    for port in sorted(own_ports):
        yield from _if_equal(_loaded(port, 4, byte_order), _DROP)
    yield from _pass_several(byte_order)
    yield (_LOAD_HALF, 0, 0, _KIND)
    yield from _if_equal(_loaded(NEW_GENERATION, 2, byte_order), _PASS)
    yield (_LOAD_BYTE, 0, 0, _FAMILY)
    yield from _require(*FAMILIES)
    attribute = table_attribute(table, byte_order)
    for offset in range(0, len(attribute), 4):
        yield (_LOAD_WORD, 0, 0, _ATTRIBUTES + offset)
        yield from _require(int.from_bytes(attribute[offset : offset + 4], "big"))
    yield (_RETURN, 0, 0, _PASS)


def generations(byte_order: str = sys.byteorder) -> Iterator[Instruction]:
    """Yield a filter that passes new generations alone: one message for each transaction, whoever's and about what."""
    yield (_LOAD_HALF, 0, 0, _KIND)
    yield from _if_equal(_loaded(NEW_GENERATION, 2, byte_order), _PASS)
    yield (_RETURN, 0, 0, _DROP)


def attach(netlink: socket.socket, instructions: Iterable[Instruction]) -> None:
    """Filter what the socket gets from now on, in place of an earlier filter; raise OSError where it is refused."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    memory = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: how many instructions, and where they are; the kernel copies them.
    pointer = struct.pack("HP", len(code) // 8, ctypes.addressof(memory))
    netlink.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


def _loaded(value: int, size: int, byte_order: str) -> int:
    # BPF loads as if all were in network order, while netlink's headers are in the host's: the constant is turned.
    turned = value.to_bytes(size, "little" if byte_order == "little" else "big")
    return int.from_bytes(turned, "big")


def _if_equal(value: int, verdict: int) -> Iterator[Instruction]:
    yield (_JUMP_IF_EQUAL, 0, 1, value)
    yield (_RETURN, 0, 0, verdict)


def _require(*values: int) -> Iterator[Instruction]:
    for left, value in zip(range(len(values), 0, -1), values, strict=True):
        yield (_JUMP_IF_EQUAL, left, 0, value)
    yield (_RETURN, 0, 0, _DROP)


def _pass_several(byte_order: str) -> Iterator[Instruction]:
    """Pass a buffer that is longer than its first message."""
    if byte_order == "little":
        # A length is a number here, not a pattern: it is put together. Two bytes do, as no buffer exceeds 8 KiB.
        yield (_LOAD_BYTE, 0, 0, _LENGTH + 1)
        yield (_SHIFT_LEFT, 0, 0, 8)
        yield (_COPY_TO_X, 0, 0, 0)
        yield (_LOAD_BYTE, 0, 0, _LENGTH)
        yield (_OR_X, 0, 0, 0)
    else:
        yield (_LOAD_WORD, 0, 0, _LENGTH)
    yield (_COPY_TO_X, 0, 0, 0)
    yield (_LOAD_BUFFER_LENGTH, 0, 0, 0)
    yield (_JUMP_IF_EQUAL_X, 1, 0, 0)
    yield (_RETURN, 0, 0, _PASS)
