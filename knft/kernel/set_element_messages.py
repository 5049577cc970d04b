# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Encodes requests for the declaration and the elements of one set or map, and splits the kernel's answers.

    nlmsghdr, nfgenmsg, then attributes; an attribute is length 2, kind 2, payload, padding to 4 bytes

See docs/design/netlink-decoding.md.
"""

import struct
from collections.abc import Iterator

from msgspec import Struct

_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_SET, _GET_SET, NEW_ELEMENTS, _GET_ELEMENTS = (_SUBSYSTEM | kind for kind in (9, 10, 12, 13))
_ERROR, _DONE = 2, 3  # NLMSG_...
_REQUEST, _MULTIPART, _DUMP = 0x1, 0x2, 0x300  # NLM_F_...
_HEADER = struct.Struct("=IHHIIBBH")  # nlmsghdr and nfgenmsg
_ATTRIBUTE = struct.Struct("=HH")
_SEQUENCE = struct.Struct("=I")
_CODE = struct.Struct("=i")
_NLMSGHDR = struct.Struct("=IHHI")
_NLMSGHDR_BYTES, _NFGENMSG_BYTES = 16, 4
_KIND_MASK = 0x3FFF  # NLA_TYPE_MASK: without the bits for nesting and byte order


class Answer(Struct, frozen=True):
    """One buffer of answers: whether it has a declaration or elements, whether it is the last one, and its errno."""

    has_contents: bool = False
    ended: bool = False
    error: int = 0


def requests(family: int, table: str, name: str) -> tuple[bytes, bytes]:
    """Return the requests for the declaration and for the elements."""
    names = _attribute(1, table.encode() + b"\0") + _attribute(2, name.encode() + b"\0")

    def request(kind: int, flags: int, sequence: int) -> bytes:
        return _HEADER.pack(_HEADER.size + len(names), kind, flags, sequence, 0, family, 0, 0) + names

    return request(_GET_SET, _REQUEST, 1), request(_GET_ELEMENTS, _REQUEST | _DUMP, 2)


def sequence(request: bytes) -> int:
    """Return the sequence number of a request."""
    return int(_SEQUENCE.unpack_from(request, 8)[0])


def check_answer(buffer: bytes, expected: int) -> Answer:
    """Describe a buffer that answers the request with the sequence number ``expected``."""
    has_contents = ended = False
    error = 0
    for kind, flags, number, start, end in messages(buffer):
        if number != expected:
            continue
        has_contents |= kind in (NEW_SET, NEW_ELEMENTS)
        # A dump has several messages, and ends with DONE.
        ended |= kind in (_ERROR, _DONE) or (kind == NEW_SET and not flags & _MULTIPART)
        if kind in (_ERROR, _DONE) and end - start >= _CODE.size:
            error = error or -int(_CODE.unpack_from(buffer, start)[0])
    return Answer(has_contents, ended, error)


def messages(buffer: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield kind, flags, sequence number, and start and end of the payload after nlmsghdr."""
    start = 0
    while start + _NLMSGHDR_BYTES <= len(buffer):
        length, kind, flags, number = _NLMSGHDR.unpack_from(buffer, start)
        end = start + max(_NLMSGHDR_BYTES, length)
        yield kind, flags, number, start + _NLMSGHDR_BYTES, min(end, len(buffer))
        start += padded(end - start)


def _attribute(kind: int, payload: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind) + payload.ljust(padded(len(payload)), b"\0")


def attributes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield kind, and start and end of the payload."""
    end = len(data) if end is None else end
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND_MASK, start + _ATTRIBUTE.size, min(start + length, end)
        start += padded(length)


def payloads(data: bytes, start: int, end: int) -> dict[int, bytes]:
    """Return the payloads of the attributes from ``start`` to ``end`` by kind; faster than ``attributes``."""
    found = {}
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < 4:  # noqa: PLR2004 - the size of an attribute's head, written out because this loop is hot
            break
        found[kind & _KIND_MASK] = data[start + 4 : min(start + length, end)]
        start += (length + 3) & ~3
    return found


def padded(length: int) -> int:
    """Return a length with its padding."""
    return (length + 3) & ~3


def contents(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and attributes of each declaration (NEW_SET) and each list of elements (NEW_ELEMENTS)."""
    for kind, _, _, start, end in messages(buffer):
        if kind in (NEW_SET, NEW_ELEMENTS):
            yield kind, buffer[start + _NFGENMSG_BYTES : end]
