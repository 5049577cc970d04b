"""Decodes the nf_tables netlink notifications that knft needs.

Decoding by hand takes less than 2 us for each message. pyroute2 takes 15 us and holds the GIL meanwhile, and a change
of 50 000 elements is as many messages. knft needs two headers and two names of each. See
docs/design/netlink-decoding.md.

    nlmsghdr:  length 4, kind 2, flags 2, sequence 4, port 4     in the host's byte order
    nfgenmsg:  family 1, version 1, resource 2
    attribute: length 2, kind 2, payload, padded with zeros to 4 bytes; the first one is always the table's name
"""

import struct
import sys
from collections.abc import Iterator

from msgspec import Struct

_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_TABLE = _SUBSYSTEM | 0
NEW_GENERATION = _SUBSYSTEM | 15
"""Ends each transaction and names the process that committed it."""
DELETED_TABLE = _SUBSYSTEM | 2
"""Also sent for `nft destroy table` (seen with 6.18); NFT_MSG_DESTROYTABLE occurs in requests only."""
_CHAINS, _RULES, _SETS, _ELEMENTS = (3, 5), (6, 8), (9, 11), (12, 14)  # new and deleted
CHAIN_NAMES = {_SUBSYSTEM | kind: 3 for kind in _CHAINS} | {_SUBSYSTEM | kind: 2 for kind in _RULES}
"""The attribute that holds the chain's name, for each kind of message about chains and rules."""
SET_NAMES = {_SUBSYSTEM | kind: 2 for kind in _SETS + _ELEMENTS}
"""The attribute that holds the name of the set or map, for each kind of message about sets and elements."""
PROCESS_ID, PROCESS_NAME = 2, 3
"""Attributes of NEW_GENERATION."""

_TABLE_NAME = 1
_HEADER = struct.Struct("=IHHIIBBH")
_ATTRIBUTE = struct.Struct("=HH")
_KIND_MASK = 0x3FFF  # NLA_TYPE_MASK: without the bits for nesting and byte order


class Message(Struct, frozen=True, gc=False):
    """One notification: its kind, the port id of the socket that made the change, and the encoded attributes."""

    kind: int
    port: int
    family: int
    attributes: bytes

    def attribute(self, number: int) -> bytes:
        """Return the payload of an attribute; empty if the message does not have it."""
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
    """Yield the messages of one buffer. Since 5.9 the kernel puts several messages of a transaction into one buffer."""
    start = 0
    while start + _HEADER.size <= len(buffer):
        length, kind, _, _, port, family, _, _ = _HEADER.unpack_from(buffer, start)
        if length < _HEADER.size:
            break
        yield Message(kind, port, family, buffer[start + _HEADER.size : start + length])
        start += _padded(length)


def table_attribute(table: str, byte_order: str = sys.byteorder) -> bytes:
    """Return the bytes with which the attributes of each message about ``table`` begin."""
    name = table.encode() + b"\0"
    head = struct.pack("<HH" if byte_order == "little" else ">HH", _ATTRIBUTE.size + len(name), _TABLE_NAME)
    return head + name.ljust(_padded(len(name)), b"\0")


def _padded(length: int) -> int:
    return (length + 3) & ~3
