"""A socket filter (classic BPF) for nf_tables notifications: drops those of knft itself and of other tables.

The kernel runs the filter on each buffer before queueing it, so a dropped buffer costs knft no CPU time. The filter has
no loops, so it checks only the first message of a buffer. All messages of a buffer are of one transaction, so the port
id of the first message is that of all; but they may be of several tables, so the filter passes other programs' buffers
with several messages.
"""

import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Iterator

from knft.families import FAMILY_OF_NUMBER
from knft.kernel.nftables_messages import NEW_GENERATION, table_attribute

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

# Offsets in a buffer; knft.kernel.nftables_messages describes the layout.
_LENGTH, _KIND, _PORT, _FAMILY, _ATTRIBUTES = 0, 4, 12, 16, 20

_SO_ATTACH_FILTER = 26  # missing in the socket module; the same on all architectures of Kubernetes

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if a comparison is true and if it is false, and a constant."""


def table_filter(table: str, own_port_ids: Iterable[int], byte_order: str = sys.byteorder) -> Iterator[Instruction]:
    """Yield a filter that drops changes made by ``own_port_ids`` and messages about other tables than ``table``.

    It passes other programs' NEW_GENERATION messages, messages about ``table`` in family ip or ip6, and buffers with
    several messages.
    """
    yield (_LOAD_WORD, 0, 0, _PORT)
    for port in sorted(own_port_ids):
        yield from _if_equal(_as_loaded(port, 4, byte_order), _DROP)
    yield from _pass_several_messages(byte_order)
    yield (_LOAD_HALF, 0, 0, _KIND)
    yield from _if_equal(_as_loaded(NEW_GENERATION, 2, byte_order), _PASS)
    yield (_LOAD_BYTE, 0, 0, _FAMILY)
    yield from _require(*FAMILY_OF_NUMBER)  # A table of the same name in another family is not knft's.
    attribute = table_attribute(table, byte_order)
    for offset in range(0, len(attribute), 4):
        yield (_LOAD_WORD, 0, 0, _ATTRIBUTES + offset)
        yield from _require(int.from_bytes(attribute[offset : offset + 4], "big"))
    yield (_RETURN, 0, 0, _PASS)


def generation_filter(byte_order: str = sys.byteorder) -> Iterator[Instruction]:
    """Yield a filter that passes NEW_GENERATION messages only: one for each transaction of any process on any table."""
    yield (_LOAD_HALF, 0, 0, _KIND)
    yield from _if_equal(_as_loaded(NEW_GENERATION, 2, byte_order), _PASS)
    yield (_RETURN, 0, 0, _DROP)


def attach(netlink: socket.socket, instructions: Iterable[Instruction]) -> None:
    """Set or replace the socket's filter; raise OSError if the kernel refuses."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    memory = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions and a pointer; the kernel copies them.
    pointer = struct.pack("HP", len(code) // 8, ctypes.addressof(memory))
    netlink.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


def _as_loaded(value: int, size: int, byte_order: str) -> int:
    # BPF loads in network byte order, but netlink headers are in host order: swap the constant instead.
    in_host_order = value.to_bytes(size, "little" if byte_order == "little" else "big")
    return int.from_bytes(in_host_order, "big")


def _if_equal(value: int, verdict: int) -> Iterator[Instruction]:
    yield (_JUMP_IF_EQUAL, 0, 1, value)
    yield (_RETURN, 0, 0, verdict)


def _require(*values: int) -> Iterator[Instruction]:
    for left, value in zip(range(len(values), 0, -1), values, strict=True):
        yield (_JUMP_IF_EQUAL, left, 0, value)
    yield (_RETURN, 0, 0, _DROP)


def _pass_several_messages(byte_order: str) -> Iterator[Instruction]:
    """Pass a buffer that is longer than its first message."""
    if byte_order == "little":
        # The length is compared as a number, so its bytes are combined. Two suffice: no buffer exceeds 8 KiB.
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
