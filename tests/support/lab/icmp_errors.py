"""Receiving ICMP's "destination unreachable" by raw sockets.

A TCP socket reports ECONNREFUSED both for a reset and for ICMP's port unreachable. Besides, over veth the ICMP message
often arrives while connect() still owns the socket: then the kernel records a soft error only, and the client learns of
it with the first retransmission, a second later. The kernel delivers an ICMP message to raw sockets at once, and before
it reports the error to the connection.
"""

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_SOL_RAW = 255
_FILTER = 1  # ICMP_FILTER and ICMP6_FILTER have the same number, each at its own level.
_UNREACHABLE_V4 = 3
_UNREACHABLE_V6 = 1
_PORT_CODE_V4 = 3
_PORT_CODE_V6 = 4
_TOO_BIG_CODE_V4 = 4  # "Fragmentation needed" does not refuse the connection.
_FIXED_HEADER_V6 = 40
_ICMP_HEADER = 8
_PORTS = struct.Struct("!HH")
# The errno for each code, as in the kernel's icmp_err_convert and tab_unreach; EHOSTUNREACH for all other codes.
_ERRORS_V4 = {0: errno.ENETUNREACH, 6: errno.ENETUNREACH, 9: errno.ENETUNREACH}
_ERRORS_V6 = {0: errno.ENETUNREACH, 1: errno.EACCES, 5: errno.EACCES, 6: errno.EACCES}


class Flow(NamedTuple):
    """The packet that an ICMP message quotes, without its source address: a socket has only one."""

    protocol: int
    destination: str
    destination_port: int
    source_port: int


class DestinationUnreachable(NamedTuple):
    """One message; ``error`` is None for port unreachable, otherwise an errno."""

    sender: str
    flow: Flow
    error: int | None


def listen(family: socket.AddressFamily) -> socket.socket:
    """Return a raw socket in the calling thread's namespace that receives only these messages."""
    if family == socket.AF_INET:
        raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        blocked = struct.pack("=I", 0xFFFFFFFF & ~(1 << _UNREACHABLE_V4))
        raw.setsockopt(_SOL_RAW, _FILTER, blocked)
    else:
        raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        blocked = struct.pack("=8I", 0xFFFFFFFF & ~(1 << _UNREACHABLE_V6), *[0xFFFFFFFF] * 7)
        raw.setsockopt(socket.IPPROTO_ICMPV6, _FILTER, blocked)
    raw.settimeout(0)
    return raw


def receive(raw: socket.socket, flow: Flow) -> DestinationUnreachable | None:
    """Return the first message about ``flow``, or None if there is none; messages about other flows are discarded."""
    return next((notice for notice in receive_all(raw) if notice.flow == flow), None)


def receive_all(raw: socket.socket) -> Iterator[DestinationUnreachable]:
    """Yield all messages that have arrived."""
    parse = _parse_v4 if raw.family == socket.AF_INET else _parse_v6
    while True:
        try:
            message, peer = raw.recvfrom(2048)
        except BlockingIOError:
            return
        notice = parse(message, peer[0])
        if notice is not None:
            yield notice


def _parse_v4(message: bytes, sender: str) -> DestinationUnreachable | None:
    # An IPv4 raw socket receives the IP header; it and the quoted header may have options.
    icmp = message[_header_length(message) :]
    quoted = icmp[_ICMP_HEADER:]
    ports = quoted[_header_length(quoted) :] if quoted else b""
    if len(ports) < _PORTS.size or icmp[1] == _TOO_BIG_CODE_V4:
        return None
    source_port, destination_port = _PORTS.unpack_from(ports)
    destination = str(ipaddress.IPv4Address(quoted[16:20]))
    code = icmp[1]
    error = None if code == _PORT_CODE_V4 else _ERRORS_V4.get(code, errno.EHOSTUNREACH)
    return DestinationUnreachable(sender, Flow(quoted[9], destination, destination_port, source_port), error)


def _header_length(packet: bytes) -> int:
    return (packet[0] & 0x0F) * 4


def _parse_v6(icmp: bytes, sender: str) -> DestinationUnreachable | None:
    quoted = icmp[_ICMP_HEADER:]
    # The quoted packets are our own, which have no extension headers.
    if len(quoted) < _FIXED_HEADER_V6 + _PORTS.size:
        return None
    source_port, destination_port = _PORTS.unpack_from(quoted, _FIXED_HEADER_V6)
    destination = str(ipaddress.IPv6Address(quoted[24:40]))
    code = icmp[1]
    error = None if code == _PORT_CODE_V6 else _ERRORS_V6.get(code, errno.EHOSTUNREACH)
    return DestinationUnreachable(sender, Flow(quoted[6], destination, destination_port, source_port), error)
