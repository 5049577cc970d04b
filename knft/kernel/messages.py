"""What nf_tables says about its changes: netlink messages, taken apart as far as knft needs it.

By hand and not through pyroute2: a message is two headers and two names, and a change of 50 000 elements is as many
messages. pyroute2 takes 15 us for each, with the interpreter's lock held; here it is less than 2 us.

    nlmsghdr:  length 4, kind 2, flags 2, sequence 4, port 4     in the host's byte order
    nfgenmsg:  family 1, version 1, resource 2
    attribute: length 2, kind 2, payload, padded with zeros to 4 bytes; the first one is always the table's name
"""

import struct
import sys
from collections.abc import Iterator

from msgspec import Struct

from knft.nft.objects import Family

FAMILIES: dict[int, Family] = {2: "ip", 10: "ip6"}
"""NFPROTO_IPV4 and NFPROTO_IPV6; a table of the same name in another family is not knft's."""

_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_TABLE = _SUBSYSTEM | 0
NEW_GENERATION = _SUBSYSTEM | 15
"""Ends each transaction, and says whose it was."""
DELETED_TABLE = _SUBSYSTEM | 2
"""Also what `nft destroy` leads to (6.18): its own kinds are for requests."""
_CHAINS, _RULES, _SETS, _ELEMENTS = (3, 5), (6, 8), (9, 11), (12, 14)  # new and deleted
CHAIN_NAMES = {_SUBSYSTEM | kind: 3 for kind in _CHAINS} | {_SUBSYSTEM | kind: 2 for kind in _RULES}
"""Which attribute names the chain, in messages about chains and about rules."""
SET_NAMES = {_SUBSYSTEM | kind: 2 for kind in _SETS + _ELEMENTS}
"""Which attribute names the set or map, in messages about these and about their elements."""
PROCESS_ID, PROCESS_NAME = 2, 3
"""Attributes of NEW_GENERATION."""

_TABLE_NAME = 1
_HEADER = struct.Struct("=IHHIIBBH")
_ATTRIBUTE = struct.Struct("=HH")
_KIND_MASK = 0x3FFF  # NLA_TYPE_MASK: without the bits for nesting and byte order


class Message(Struct, frozen=True, gc=False):
    """One notification: what happened, which socket (its port id) asked for it, and its attributes' bytes."""

    kind: int
    port: int
    family: int
    attributes: bytes

    def attribute(self, number: int) -> bytes:
        """Return an attribute's payload; empty where there is none."""
        start = 0
        while start + _ATTRIBUTE.size <= len(self.attributes):
            length, kind = _ATTRIBUTE.unpack_from(self.attributes, start)
            if length < _ATTRIBUTE.size:
                break
            if kind & _KIND_MASK == number:
                return self.attributes[start + _ATTRIBUTE.size : start + length]
            start += _padded(length)
        return b""


def split(buffer: bytes) -> Iterator[Message]:
    """Yield the messages of one buffer: the kernel puts many of one transaction into one, from 5.9 on."""
    start = 0
    while start + _HEADER.size <= len(buffer):
        length, kind, _, _, port, family, _, _ = _HEADER.unpack_from(buffer, start)
        if length < _HEADER.size:
            break
        yield Message(kind, port, family, buffer[start + _HEADER.size : start + length])
        start += _padded(length)


def table_attribute(table: str, byte_order: str = sys.byteorder) -> bytes:
    """Return the bytes with which the attributes of every message about ``table`` start."""
    name = table.encode() + b"\0"
    head = struct.pack("<HH" if byte_order == "little" else ">HH", _ATTRIBUTE.size + len(name), _TABLE_NAME)
    return head + name.ljust(_padded(len(name)), b"\0")


def text(payload: bytes) -> str:
    """Return a name for people: others choose it, and may have put anything into it."""
    decoded = payload.rstrip(b"\0").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in decoded)


def _padded(length: int) -> int:
    return (length + 3) & ~3
