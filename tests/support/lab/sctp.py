"""SCTP without a kernel that has it: an association's first two packets, made and read by hand.

A client's INIT goes through conntrack and NAT like any other packet; the INIT ACK that answers it has the server's
line as its state cookie. Both are sent and received by raw sockets.
"""

import socket
import struct
from typing import NamedTuple

_COMMON = struct.Struct("!HHII")  # Source port, destination port, verification tag, checksum.
_CHUNK = struct.Struct("!BBH")  # Type, flags, length.
_OPENING = struct.Struct("!IIHHI")  # Initiate tag, window, outbound and inbound streams, first TSN.
_PARAMETER = struct.Struct("!HH")  # Type, length.
_INIT, _INIT_ACK = 1, 2
_STATE_COOKIE = 7
_WINDOW = 1 << 16
_LONGEST = 4096


class Opening(NamedTuple):
    """An INIT, or an INIT ACK with its cookie; ``tag`` is the sender's initiate tag."""

    source_port: int
    destination_port: int
    tag: int
    cookie: bytes = b""


def open_raw(family: socket.AddressFamily) -> socket.socket:
    """Return a socket for all SCTP packets of the calling thread's namespace."""
    return socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP)


def init(source_port: int, destination_port: int, tag: int) -> bytes:
    """Return the packet that asks for an association."""
    return _packet(source_port, destination_port, 0, _INIT, _OPENING.pack(tag, _WINDOW, 1, 1, tag))


def init_ack(asked: Opening, cookie: bytes) -> bytes:
    """Return the packet that answers ``asked``."""
    parameter = _PARAMETER.pack(_STATE_COOKIE, _PARAMETER.size + len(cookie)) + cookie
    body = _OPENING.pack(asked.tag, _WINDOW, 1, 1, asked.tag) + parameter
    return _packet(asked.destination_port, asked.source_port, asked.tag, _INIT_ACK, body)


def receive(raw: socket.socket) -> tuple[Opening, str] | None:
    """Return the next packet and its sender's address, None if it is neither INIT nor INIT ACK, or damaged."""
    packet, peer = raw.recvfrom(_LONGEST)
    if raw.family == socket.AF_INET:  # An IPv4 raw socket receives the IP header too.
        packet = packet[(packet[0] & 0x0F) * 4 :]
    found = _parse(packet)
    return None if found is None else (found, peer[0])


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))


def _packet(source_port: int, destination_port: int, tag: int, kind: int, body: bytes) -> bytes:
    padding = bytes(-len(body) % 4)  # Not part of the length.
    chunk = _CHUNK.pack(kind, 0, _CHUNK.size + len(body)) + body + padding
    checksum = crc32c(_COMMON.pack(source_port, destination_port, tag, 0) + chunk)
    # The checksum alone is sent least significant byte first.
    (swapped,) = struct.unpack("!I", struct.pack("<I", checksum))
    return _COMMON.pack(source_port, destination_port, tag, swapped) + chunk


def _parse(packet: bytes) -> Opening | None:
    begin = _COMMON.size + _CHUNK.size
    if len(packet) < begin + _OPENING.size:
        return None
    source_port, destination_port, _, checksum = _COMMON.unpack_from(packet)
    kind, _, length = _CHUNK.unpack_from(packet, _COMMON.size)
    expected = crc32c(packet[:8] + bytes(4) + packet[12:])
    if kind not in {_INIT, _INIT_ACK} or struct.pack("!I", checksum) != struct.pack("<I", expected):
        return None
    tag = _OPENING.unpack_from(packet, begin)[0]
    cookie = packet[begin + _OPENING.size + _PARAMETER.size : _COMMON.size + length]
    return Opening(source_port, destination_port, tag, cookie if kind == _INIT_ACK else b"")
