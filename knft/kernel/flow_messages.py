"""What ctnetlink says about UDP flows, and is told: netlink messages, written and taken apart as far as knft needs it.

By hand and not through pyroute2: that takes 100 us for each message, with the interpreter's lock held, and there may be
hundreds of thousands. Here it is 2 us.

    nlmsghdr 16 bytes, nfgenmsg 4, then attributes, in the order in which the kernel has always written them:
    CTA_TUPLE_ORIG  { CTA_TUPLE_IP { source, destination }, CTA_TUPLE_PROTO { number, source port, destination port } }
    CTA_TUPLE_REPLY { the same of the answers }, and more, CTA_ID and sometimes CTA_ZONE among them
"""

import re
import socket
import struct
from collections.abc import Iterator

from msgspec import Struct

_SUBSYSTEM = 1 << 8  # NFNL_SUBSYS_CTNETLINK
FLOW, _GET, _DELETE = _SUBSYSTEM | 0, _SUBSYSTEM | 1, _SUBSYSTEM | 2  # IPCTNL_MSG_CT_...
ERROR, DONE = 2, 3  # NLMSG_...
INTERRUPTED = 0x10  # NLM_F_DUMP_INTR
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300  # NLM_F_...
_ORIGINAL, _REPLY, _STATUS, _ID, _ZONE, _FILTER = 1, 2, 3, 12, 18, 25  # CTA_...
_SEEN_REPLY = 1 << 1  # IPS_SEEN_REPLY
_NESTED = 0x8000  # NLA_F_NESTED
_BY_PROTOCOL = 1 << 3  # CTA_FILTER_F_CTA_PROTO_NUM

_HEADER = struct.Struct("=IHHIIBBH")  # nlmsghdr and nfgenmsg
_BEGINNING = struct.Struct("=IHHI")  # length, kind, flags, sequence number
_AFTER_HEADER = 16
_LENGTH = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")
_NUMBER = struct.Struct("=I")
_STATUS_BITS = struct.Struct(">I")


class Flow(Struct, frozen=True, gc=False):
    """One UDP flow: whom its first packet was sent to, and who answers it, each an address and a port as bytes.

    ``answered`` and ``number`` are the attributes that name it to the kernel: where it answers from, and an identity
    made of where it was sent to. A flow that the same client has opened anew, and that leads elsewhere, has others.
    ``is_answered`` tells whether anything has ever come back.
    """

    dialled: bytes
    answering: bytes
    answered: bytes
    number: bytes
    is_answered: bool = True


def listing_request(family: int, sequence: int) -> bytes:
    """Ask for the UDP flows of AF_INET or AF_INET6: before 5.8 the kernel lists those of all protocols."""
    udp = _nested(_ORIGINAL, _nested(2, _attribute(1, bytes([socket.IPPROTO_UDP]))))
    by_protocol = _nested(_FILTER, _attribute(1, _NUMBER.pack(_BY_PROTOCOL)))
    return _request(_GET, _REQUEST | _DUMP, sequence, family, udp + by_protocol)


def deletion_request(family: int, sequence: int, flow: Flow) -> bytes:
    """Ask for a flow to be deleted, and for an answer."""
    return _request(_DELETE, _REQUEST | _ACK, sequence, family, flow.answered + flow.number)


def split(buffer: bytes, sequences: range) -> Iterator[tuple[int, int, int]]:
    """Yield kind, flags and place of those messages of a buffer that answer a request with one of these numbers."""
    start, last, unpack = 0, len(buffer) - _AFTER_HEADER, _BEGINNING.unpack_from
    while start <= last:
        length, kind, flags, sequence = unpack(buffer, start)
        if sequence in sequences:
            yield kind, flags, start
        start += max(_AFTER_HEADER, (length + 3) & ~3)


def code(buffer: bytes, start: int) -> int:
    """Return the errno in an ERROR or DONE at that place; 0 where all is well."""
    if len(buffer) < start + _AFTER_HEADER + _CODE.size:
        return 0
    return -int(_CODE.unpack_from(buffer, start + _AFTER_HEADER)[0])


def layout(family: int) -> re.Pattern[bytes]:
    """Return what a message about a UDP flow looks like.

    Groups are dialled address, its port, ``answered``, the whole second tuple, answering address, and its port.
    A tuple that is in a zone of its own is longer, and does not match.
    """
    if family == socket.AF_INET:
        size, source, destination = 4, 1, 2  # CTA_IP_V4_...
    else:
        size, source, destination = 16, 3, 4  # CTA_IP_V6_...
    address, port, padding = b".{%d}" % size, b"..", b".."

    def ends(kind: int, source_end: tuple[bytes, bytes], destination_end: tuple[bytes, bytes]) -> bytes:
        addresses = _head(source, size) + source_end[0] + _head(destination, size) + destination_end[0]
        protocol = _head(1, 1) + re.escape(bytes([socket.IPPROTO_UDP])) + b"..."
        ports = _head(2, 2) + source_end[1] + padding + _head(3, 2) + destination_end[1] + padding
        network = _head(1 | _NESTED, 2 * (_ATTRIBUTE.size + size)) + addresses
        transport = _head(2 | _NESTED, 3 * (_ATTRIBUTE.size + 4)) + protocol + ports
        return _head(kind | _NESTED, 2 * _ATTRIBUTE.size + 2 * (_ATTRIBUTE.size + size) + 24) + network + transport

    anyone, kept = (address, port), (b"(%b)" % address, b"(%b)" % port)
    opened, answered = ends(_ORIGINAL, anyone, kept), ends(_REPLY, kept, anyone)
    return re.compile(b".{%d}%b(?P<answered>%b)" % (_HEADER.size, opened, answered), re.DOTALL)


def flow_of_zone_0(buffer: bytes, start: int, found: re.Match[bytes]) -> Iterator[Flow]:
    """Yield the flow of the message at that place, which ``layout`` has found; nothing where it is of another zone."""
    end = start + _LENGTH.unpack_from(buffer, start)[0]
    place, number, is_answered = found.end(), b"", True
    while place + _ATTRIBUTE.size <= end:
        size, kind = _ATTRIBUTE.unpack_from(buffer, place)
        if kind == _ZONE:
            return
        if kind == _ID:
            number = buffer[place : place + size]
        if kind == _STATUS:
            is_answered = bool(_STATUS_BITS.unpack_from(buffer, place + _ATTRIBUTE.size)[0] & _SEEN_REPLY)
        place += max(_ATTRIBUTE.size, (size + 3) & ~3)
    yield Flow(found[1] + found[2], found[4] + found[5], found["answered"], number, is_answered)


def _request(kind: int, flags: int, sequence: int, family: int, attributes: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(attributes), kind, flags, sequence, 0, family, 0, 0) + attributes


def _attribute(kind: int, payload: bytes) -> bytes:
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload.ljust((len(payload) + 3) & ~3, b"\0")


def _nested(kind: int, attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, attributes)


def _head(kind: int, length: int) -> bytes:
    return re.escape(_ATTRIBUTE.pack(_ATTRIBUTE.size + length, kind))
