# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Encodes requests for the declaration and for elements of one set or map, and describes the kernel's answers.

See docs/design/netlink-decoding.md.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from knft.kernel import netlink_messages
from knft.kernel.netlink_messages import DONE, DUMP, ERROR, MULTIPART

_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_SET, _GET_SET, NEW_ELEMENTS, _GET_ELEMENTS = (_SUBSYSTEM | kind for kind in (9, 10, 12, 13))
ELEMENTS = 3  # NFTA_SET_ELEM_LIST_ELEMENTS
_ELEMENT, _KEY, _VALUE = 1, 1, 1  # NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY, NFTA_DATA_VALUE
_NESTED = 0x8000  # NLA_F_NESTED
_NFGENMSG = struct.Struct("=BBH")
_SEQUENCE = struct.Struct("=I")


class Answer(NamedTuple):
    """One buffer of answers: whether it has a declaration or elements, whether it is the last one, and its errno."""

    has_contents: bool = False
    ended: bool = False
    error: int = 0


def requests(family: int, table: str, name: str, sequence: Iterator[int]) -> tuple[bytes, bytes]:
    """Return the requests for the declaration and for the elements, with the next numbers of ``sequence``."""
    payload = _of_set(family, table, name)
    return (
        netlink_messages.request(_GET_SET, 0, next(sequence), payload),
        netlink_messages.request(_GET_ELEMENTS, DUMP, next(sequence), payload),
    )


def element_request(family: int, table: str, name: str, key: bytes, sequence: int) -> bytes:
    """Return the request for one element; ``key`` are its parts, each padded to 4 bytes."""
    element = _nested(_ELEMENT, _nested(_KEY, netlink_messages.attribute(_VALUE, key)))
    payload = _of_set(family, table, name) + _nested(ELEMENTS, element)
    return netlink_messages.request(_GET_ELEMENTS, 0, sequence, payload)


def _of_set(family: int, table: str, name: str) -> bytes:
    return _NFGENMSG.pack(family, 0, 0) + b"".join(
        netlink_messages.attribute(kind, text.encode() + b"\0") for kind, text in ((1, table), (2, name))
    )


def _nested(kind: int, attributes: bytes) -> bytes:
    return netlink_messages.attribute(kind | _NESTED, attributes)


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
        ended |= kind in (ERROR, DONE) or (kind in (NEW_SET, NEW_ELEMENTS) and not flags & MULTIPART)
        if kind in (ERROR, DONE):
            error = error or netlink_messages.error_code(buffer, start, end)
    return Answer(has_contents, ended, error)


def contents(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and attributes of each declaration (NEW_SET) and each list of elements (NEW_ELEMENTS)."""
    for kind, _, _, start, end in netlink_messages.messages(buffer):
        if kind in (NEW_SET, NEW_ELEMENTS):
            yield kind, buffer[start + _NFGENMSG.size : end]


def have_same_form(elements: bytes, size: int, variable: Sequence[range]) -> bool:
    """Tell whether all elements of a list, ``size`` bytes each, equal the first one outside of ``variable``.

    One comparison for each byte of an element takes a fraction of the time of one for each element.
    """
    count, rest = divmod(len(elements), size)
    differing = {offset for part in variable for offset in part}
    return not rest and all(
        elements[offset::size] == elements[offset : offset + 1] * count
        for offset in range(size)
        if offset not in differing
    )


def find_attribute(data: bytes, start: int, end: int, wanted: int) -> range:
    """Return where the payload of an attribute is, an empty range if there is none."""
    for kind, first, last in netlink_messages.attributes(data, start, end):
        if kind == wanted:
            return range(first, last)
    return range(0)
