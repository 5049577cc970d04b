# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Encodes and splits netlink messages of any protocol.

    nlmsghdr, the header of the protocol (nfgenmsg, ifaddrmsg, ...), then attributes
    an attribute: length 2, kind 2, payload, padding to 4 bytes

See docs/design/netlink-decoding.md.
"""

import struct
from collections.abc import Iterator

REQUEST, MULTIPART, INTERRUPTED, DUMP = 0x1, 0x2, 0x10, 0x300  # NLM_F_...
ERROR, DONE = 2, 3  # NLMSG_...
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")
_KIND_MASK = 0x3FFF  # NLA_TYPE_MASK: without the bits for nesting and byte order


def request(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    """Return a message whose payload is the header of the protocol and attributes."""
    return _HEADER.pack(_HEADER.size + len(payload), kind, REQUEST | flags, sequence, 0) + payload


def messages(buffer: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield kind, flags, sequence number, and start and end of the payload after nlmsghdr."""
    start = 0
    while start + _HEADER.size <= len(buffer):
        length, kind, flags, number, _ = _HEADER.unpack_from(buffer, start)
        end = start + max(_HEADER.size, length)
        yield kind, flags, number, start + _HEADER.size, min(end, len(buffer))
        start += padded(end - start)


def error_code(buffer: bytes, start: int, end: int) -> int:
    """Return the errno of a message of kind ERROR or DONE; 0 for success."""
    return -int(_CODE.unpack_from(buffer, start)[0]) if end - start >= _CODE.size else 0


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an encoded attribute."""
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
