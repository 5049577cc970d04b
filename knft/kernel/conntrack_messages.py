"""Encodes and decodes the ctnetlink messages about UDP and TCP flows that knft needs.

Decoding by hand takes 2 us for each message. pyroute2 takes 100 us and holds the GIL meanwhile; there may be hundreds
of thousands of messages. See docs/design/netlink-decoding.md.

    nlmsghdr 16 bytes, nfgenmsg 4 bytes, then attributes in the order that the kernel has always used:
    CTA_TUPLE_ORIG  { CTA_TUPLE_IP { source, destination }, CTA_TUPLE_PROTO { number, source port, destination port } }
    CTA_TUPLE_REPLY { the same for the reply direction }, and others, such as CTA_ID and CTA_ZONE
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
_BY_ADDRESS = 1 << 0  # CTA_FILTER_F_CTA_IP_SRC
_BY_PORT = 1 << 4  # CTA_FILTER_F_CTA_PROTO_SRC_PORT
_PORT_BYTES = 2

_HEADER = struct.Struct("=IHHIIBBH")  # nlmsghdr and nfgenmsg
_NLMSGHDR = struct.Struct("=IHHI")  # length, kind, flags, sequence number
_NLMSGHDR_BYTES = 16
_LENGTH = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")
_NUMBER = struct.Struct("=I")
_STATUS_BITS = struct.Struct(">I")


class Flow(Struct, frozen=True, gc=False):
    """One conntrack entry of UDP or TCP.

    ``original_destination`` and ``reply_source`` are each an address and a port as bytes: the destination of the
    client's first packet, and the address that replies, which is the endpoint's if the packet was translated.
    ``reply_attribute`` (CTA_TUPLE_REPLY) and ``id_attribute`` (CTA_ID) identify the entry in a deletion request; an
    entry that the same client creates later has others. ``has_reply`` is IPS_SEEN_REPLY: the endpoint has replied at
    least once.
    """

    original_destination: bytes
    reply_source: bytes
    reply_attribute: bytes
    id_attribute: bytes
    has_reply: bool = True


def dump_request(family: int, sequence: int, protocol: int, reply_source: bytes | None = None) -> bytes:
    """Return a request to dump a protocol's flows of AF_INET or AF_INET6: all, or those to one endpoint.

    ``reply_source`` is the endpoint's address and port. Kernels before 5.8 ignore the filter, so the flows of others
    may be dumped, too, and in IPv6 those to other endpoints with the same port.
    """
    number = _attribute(1, bytes([protocol]))
    if reply_source is None:
        tuples = _nested(_ORIGINAL, _nested(2, number))
        flags = _attribute(1, _NUMBER.pack(_BY_PROTOCOL))
    else:
        # Linux (6.18, since 5.8) passes just the flows with another address if it filters by an IPv6 address.
        by_address = family == socket.AF_INET
        address = _nested(1, _attribute(1, reply_source[:-_PORT_BYTES])) if by_address else b""
        port = _nested(2, number + _attribute(2, reply_source[-_PORT_BYTES:]))
        tuples = _nested(_REPLY, address + port)
        flags = _attribute(2, _NUMBER.pack(_BY_PROTOCOL | _BY_PORT | _BY_ADDRESS * by_address))
    return _request(_GET, _REQUEST | _DUMP, sequence, family, tuples + _nested(_FILTER, flags))


def deletion_request(family: int, sequence: int, flow: Flow) -> bytes:
    """Return a request to delete a flow, which the kernel acknowledges."""
    return _request(_DELETE, _REQUEST | _ACK, sequence, family, flow.reply_attribute + flow.id_attribute)


def split(buffer: bytes, sequences: range) -> Iterator[tuple[int, int, int]]:
    """Yield kind, flags and offset of each message in a buffer that answers a request numbered in ``sequences``."""
    start, last, unpack = 0, len(buffer) - _NLMSGHDR_BYTES, _NLMSGHDR.unpack_from
    while start <= last:
        length, kind, flags, sequence = unpack(buffer, start)
        if sequence in sequences:
            yield kind, flags, start
        start += max(_NLMSGHDR_BYTES, (length + 3) & ~3)


def error_code(buffer: bytes, start: int) -> int:
    """Return the errno of the ERROR or DONE message at that offset; 0 on success."""
    if len(buffer) < start + _NLMSGHDR_BYTES + _CODE.size:
        return 0
    return -int(_CODE.unpack_from(buffer, start + _NLMSGHDR_BYTES)[0])


def flow_pattern(family: int, protocol: int) -> re.Pattern[bytes]:
    """Return a pattern for the beginning of a message about a protocol's flow.

    Groups: original destination address and port, ``reply`` (the whole CTA_TUPLE_REPLY), reply source address and port.
    A tuple with a zone of its own is longer and does not match.
    """
    if family == socket.AF_INET:
        size, source, destination = 4, 1, 2  # CTA_IP_V4_...
    else:
        size, source, destination = 16, 3, 4  # CTA_IP_V6_...
    address, port, padding = b".{%d}" % size, b"..", b".."

    def tuple_pattern(kind: int, source_end: tuple[bytes, bytes], destination_end: tuple[bytes, bytes]) -> bytes:
        addresses = (
            _attribute_head_pattern(source, size)
            + source_end[0]
            + _attribute_head_pattern(destination, size)
            + destination_end[0]
        )
        number = _attribute_head_pattern(1, 1) + re.escape(bytes([protocol])) + b"..."
        ports = (
            _attribute_head_pattern(2, 2)
            + source_end[1]
            + padding
            + _attribute_head_pattern(3, 2)
            + destination_end[1]
            + padding
        )
        network = _attribute_head_pattern(1 | _NESTED, 2 * (_ATTRIBUTE.size + size)) + addresses
        transport = _attribute_head_pattern(2 | _NESTED, 3 * (_ATTRIBUTE.size + 4)) + number + ports
        return (
            _attribute_head_pattern(kind | _NESTED, 2 * _ATTRIBUTE.size + 2 * (_ATTRIBUTE.size + size) + 24)
            + network
            + transport
        )

    any_socket, captured_socket = (address, port), (b"(%b)" % address, b"(%b)" % port)
    original, reply = (
        tuple_pattern(_ORIGINAL, any_socket, captured_socket),
        tuple_pattern(_REPLY, captured_socket, any_socket),
    )
    return re.compile(b".{%d}%b(?P<reply>%b)" % (_HEADER.size, original, reply), re.DOTALL)


def parse_flow(buffer: bytes, start: int, found: re.Match[bytes]) -> Iterator[Flow]:
    """Yield the flow of the message at that offset, matched by ``flow_pattern``; nothing if it is in another zone."""
    end = start + _LENGTH.unpack_from(buffer, start)[0]
    offset, id_attribute, has_reply = found.end(), b"", True
    while offset + _ATTRIBUTE.size <= end:
        size, kind = _ATTRIBUTE.unpack_from(buffer, offset)
        if kind == _ZONE:
            return
        if kind == _ID:
            id_attribute = buffer[offset : offset + size]
        if kind == _STATUS:
            has_reply = bool(_STATUS_BITS.unpack_from(buffer, offset + _ATTRIBUTE.size)[0] & _SEEN_REPLY)
        offset += max(_ATTRIBUTE.size, (size + 3) & ~3)
    yield Flow(found[1] + found[2], found[4] + found[5], found["reply"], id_attribute, has_reply)


def _request(kind: int, flags: int, sequence: int, family: int, attributes: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(attributes), kind, flags, sequence, 0, family, 0, 0) + attributes


def _attribute(kind: int, payload: bytes) -> bytes:
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload.ljust((len(payload) + 3) & ~3, b"\0")


def _nested(kind: int, attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, attributes)


def _attribute_head_pattern(kind: int, length: int) -> bytes:
    return re.escape(_ATTRIBUTE.pack(_ATTRIBUTE.size + length, kind))
