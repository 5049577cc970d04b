# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Encodes requests for the declaration and the elements of one set or map, and describes the kernel's answers.

See docs/design/netlink-decoding.md.
"""

import struct
from collections.abc import Iterator

from msgspec import Struct

from knft.kernel import netlink_messages
from knft.kernel.netlink_messages import DONE, DUMP, ERROR, MULTIPART

_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_SET, _GET_SET, NEW_ELEMENTS, _GET_ELEMENTS = (_SUBSYSTEM | kind for kind in (9, 10, 12, 13))
_NFGENMSG = struct.Struct("=BBH")
_SEQUENCE = struct.Struct("=I")


class Answer(Struct, frozen=True):
    """One buffer of answers: whether it has a declaration or elements, whether it is the last one, and its errno."""

    has_contents: bool = False
    ended: bool = False
    error: int = 0


def requests(family: int, table: str, name: str, sequence: Iterator[int]) -> tuple[bytes, bytes]:
    """Return the requests for the declaration and for the elements, with the next numbers of ``sequence``."""
    payload = _NFGENMSG.pack(family, 0, 0) + b"".join(
        netlink_messages.attribute(kind, text.encode() + b"\0") for kind, text in ((1, table), (2, name))
    )
    return (
        netlink_messages.request(_GET_SET, 0, next(sequence), payload),
        netlink_messages.request(_GET_ELEMENTS, DUMP, next(sequence), payload),
    )


def sequence(request: bytes) -> int:
    """Return the sequence number of a request."""
    return int(_SEQUENCE.unpack_from(request, 8)[0])


def check_answer(buffer: bytes, expected: int) -> Answer:
    """Describe a buffer that answers the request with the sequence number ``expected``."""
    has_contents = ended = False
    error = 0
    for kind, flags, number, start, end in netlink_messages.messages(buffer):
        if number != expected:
            continue
        has_contents |= kind in (NEW_SET, NEW_ELEMENTS)
        # A dump has several messages, and ends with DONE.
        ended |= kind in (ERROR, DONE) or (kind == NEW_SET and not flags & MULTIPART)
        if kind in (ERROR, DONE):
            error = error or netlink_messages.error_code(buffer, start, end)
    return Answer(has_contents, ended, error)


def contents(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and attributes of each declaration (NEW_SET) and each list of elements (NEW_ELEMENTS)."""
    for kind, _, _, start, end in netlink_messages.messages(buffer):
        if kind in (NEW_SET, NEW_ELEMENTS):
            yield kind, buffer[start + _NFGENMSG.size : end]
