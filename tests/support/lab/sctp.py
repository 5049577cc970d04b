"""The first two packets of an SCTP association, built and parsed here, for kernels without SCTP.

A client sends an INIT, which conntrack and NAT handle like any packet. The server answers with an INIT ACK, whose state
cookie is the server's line of JSON. Both use raw sockets.
"""

import socket
import struct
from typing import NamedTuple

_COMMON_HEADER = struct.Struct("!HHII")  # Source port, destination port, verification tag, checksum.
_CHUNK_HEADER = struct.Struct("!BBH")  # Type, flags, length.
_INIT_BODY = struct.Struct("!IIHHI")  # Initiate tag, window, outbound and inbound streams, first TSN.
_PARAMETER = struct.Struct("!HH")  # Type, length.
_INIT, _INIT_ACK = 1, 2
_STATE_COOKIE = 7
_WINDOW = 1 << 16
_MAX_PACKET = 4096


class Init(NamedTuple):
    """An INIT, or an INIT ACK with its state cookie; ``tag`` is the sender's initiate tag."""

    source_port: int
    destination_port: int
    tag: int
    cookie: bytes = b""


def open_raw(family: socket.AddressFamily) -> socket.socket:
    """Return a raw socket for all SCTP packets of the calling thread's namespace."""
    return socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP)


def init(source_port: int, destination_port: int, tag: int) -> bytes:
    """Return an INIT."""
    return _packet(source_port, destination_port, 0, _INIT, _INIT_BODY.pack(tag, _WINDOW, 1, 1, tag))


def init_ack(request: Init, cookie: bytes) -> bytes:
    """Return the INIT ACK that answers ``request``."""
    parameter = _PARAMETER.pack(_STATE_COOKIE, _PARAMETER.size + len(cookie)) + cookie
    body = _INIT_BODY.pack(request.tag, _WINDOW, 1, 1, request.tag) + parameter
    return _packet(request.destination_port, request.source_port, request.tag, _INIT_ACK, body)


def receive(raw: socket.socket) -> tuple[Init, str] | None:
    """Return the next packet and its sender's address; None if it is not a valid INIT or INIT ACK."""
    packet, peer = raw.recvfrom(_MAX_PACKET)
    if raw.family == socket.AF_INET:  # An IPv4 raw socket receives the IP header.
        packet = packet[(packet[0] & 0x0F) * 4 :]
    found = _parse(packet)
    return None if found is None else (found, peer[0])


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_table_entry, range(256)))


def _packet(source_port: int, destination_port: int, tag: int, kind: int, body: bytes) -> bytes:
    padding = bytes(-len(body) % 4)  # The length does not count the padding.
    chunk = _CHUNK_HEADER.pack(kind, 0, _CHUNK_HEADER.size + len(body)) + body + padding
    checksum = crc32c(_COMMON_HEADER.pack(source_port, destination_port, tag, 0) + chunk)
    # Only the checksum is in little-endian byte order (RFC 9260, appendix A).
    (swapped,) = struct.unpack("!I", struct.pack("<I", checksum))
    return _COMMON_HEADER.pack(source_port, destination_port, tag, swapped) + chunk


def _parse(packet: bytes) -> Init | None:
    begin = _COMMON_HEADER.size + _CHUNK_HEADER.size
    if len(packet) < begin + _INIT_BODY.size:
        return None
    source_port, destination_port, _, checksum = _COMMON_HEADER.unpack_from(packet)
    kind, _, length = _CHUNK_HEADER.unpack_from(packet, _COMMON_HEADER.size)
    expected = crc32c(packet[:8] + bytes(4) + packet[12:])
    if kind not in {_INIT, _INIT_ACK} or struct.pack("!I", checksum) != struct.pack("<I", expected):
        return None
    tag = _INIT_BODY.unpack_from(packet, begin)[0]
    cookie = packet[begin + _INIT_BODY.size + _PARAMETER.size : _COMMON_HEADER.size + length]
    return Init(source_port, destination_port, tag, cookie if kind == _INIT_ACK else b"")
