"""TCP segments that a TCP stack would not send: in a connection through a Service, or without a connection.

A raw socket sends them. Packet sockets show the sequence numbers of the endpoint, and what arrives at the client.
"""

import ipaddress
import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version
from tests.support.lab.topology import Host
from tests.support.waiting import TIMEOUT

_ALL_PROTOCOLS = socket.htons(0x0003)  # ETH_P_ALL: without it, a packet socket does not see outgoing packets.
_ETHERNET_HEADER, _TYPES = 14, {4: b"\x08\x00", 6: b"\x86\xdd"}
_IPV6_HEADER = 40
_TCP = struct.Struct("!HHIIBBHHH")
_PUSH_ACK, _SYN_ACK, _RESET = 0x18, 0x12, 0x04
_OWN_PORT, _OTHER_PORT = 33333, 44444
"""Ports without a connection."""
_FAR = 1 << 30
"""So far ahead that no window reaches there."""
_MARK = b"outside the window"
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


class Segment(NamedTuple):
    """A received or sent TCP segment; ``after`` is the sequence number that follows it."""

    source: str
    source_port: int
    after: int
    acknowledged: int
    payload: bytes


class ServiceConnection:
    """A connection of a client to a frontend, and the endpoint that accepts it; a context manager."""

    def __init__(self, client: Host, endpoint: Host, port: int, version: Version) -> None:
        """``port`` is that of the endpoint."""
        self._client_host, self._endpoint_host, self._port, self._version = client, endpoint, port, version
        self._family = _FAMILIES[version]
        self._open = ExitStack()
        with endpoint.namespace.entered():
            self._listener = self._keep(socket.create_server(("", port), family=self._family))
            self._raw = self._keep(socket.socket(self._family, socket.SOCK_RAW, socket.IPPROTO_TCP))
        self._listener.settimeout(TIMEOUT)
        self._sent = self._packet_socket(endpoint.namespace)
        self._arrived = self._packet_socket(client.namespace)

    def _keep(self, opened: socket.socket) -> socket.socket:
        self._open.callback(opened.close)
        return opened

    def _packet_socket(self, namespace: Namespace) -> socket.socket:
        with namespace.entered():
            opened = self._keep(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, _ALL_PROTOCOLS))
        opened.settimeout(TIMEOUT)
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all sockets."""
        self._open.close()

    def connect(self, address: str, port: int) -> None:
        """Connect the client to a frontend, and send data in both directions."""
        with self._client_host.namespace.entered():
            self.client = self._keep(socket.create_connection((address, port), TIMEOUT))
        self._server = self._keep(self._listener.accept()[0])
        self._server.settimeout(TIMEOUT)
        self.exchange()

    def exchange(self) -> None:
        """Send data in both directions; raise ConnectionResetError if the client has reset the connection."""
        self.client.sendall(b"question")
        assert self._server.recv(64) == b"question"
        self._server.sendall(b"answer")
        assert self.client.recv(64) == b"answer"

    def send_from_endpoint(self, data: bytes) -> None:
        """Send data from the endpoint."""
        self._server.sendall(data)

    def wait_for_reset(self) -> None:
        """Wait until the endpoint's connection is reset."""
        try:
            received = self._server.recv(64)
        except ConnectionResetError:
            return
        msg = f"received {received!r} instead of a reset"
        raise AssertionError(msg)

    def send_outside_window(self) -> None:
        """Send the client a segment of the endpoint, far ahead of the window."""
        last = self._last_sent()
        where = self.client.getsockname()[:2]
        sequence = (last.after + _FAR) % (1 << 32)
        header = _TCP.pack(self._port, where[1], sequence, last.acknowledged, 5 << 4, _PUSH_ACK, 512, 0, 0)
        self._raw.sendto(_with_checksum(header, _MARK, (self.endpoint_address, where[0])), (where[0], 0))

    @property
    def endpoint_address(self) -> str:
        """The endpoint's own address."""
        return self._endpoint_host.address(self._version)

    def _last_sent(self) -> Segment:
        """Return the last segment that the endpoint has sent."""
        self._sent.settimeout(0)
        found: Segment | None = None
        while True:
            try:
                segment = _parse(self._sent.recv(1 << 16), self._version)
            except BlockingIOError:
                break
            if segment is not None and segment.source_port == self._port:
                found = segment
        assert found is not None
        return found

    def source_of_arrived(self) -> str:
        """Wait for the segment outside the window at the client, and return its source address."""
        while True:
            segment = _parse(self._arrived.recv(1 << 16), self._version)
            if segment is not None and segment.payload == _MARK:
                return segment.source


def resets_syn_ack(host: Host, destination: str, seconds: float) -> bool:
    """Send a SYN/ACK without a connection, which conntrack finds INVALID; tell whether it is answered with a reset."""
    version: Version = 6 if ":" in destination else 4
    with host.namespace.entered():
        raw = socket.socket(_FAMILIES[version], socket.SOCK_RAW, socket.IPPROTO_TCP)
    with raw:
        header = _TCP.pack(_OWN_PORT, _OTHER_PORT, 1, 1, 5 << 4, _SYN_ACK, 512, 0, 0)
        raw.sendto(_with_checksum(header, b"", (host.address(version), destination)), (destination, 0))
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            raw.settimeout(left)
            with suppress(TimeoutError):
                packet = raw.recv(1 << 16)
                port, own_port, *_, flags, _, _, _ = _TCP.unpack_from(packet, 4 * (packet[0] & 15) * (version == 4))
                if (port, own_port) == (_OTHER_PORT, _OWN_PORT) and flags & _RESET:
                    return True
    return False


def _with_checksum(header: bytes, payload: bytes, addresses: tuple[str, str]) -> bytes:
    """Return a segment from the first address to the second one."""
    pseudo = b"".join(ipaddress.ip_address(host).packed for host in addresses)
    pseudo += struct.pack("!II", len(header + payload), socket.IPPROTO_TCP)
    checksum = struct.pack("!H", _checksum(pseudo + header + payload))
    return header[:16] + checksum + header[18:] + payload


def _parse(frame: bytes, version: Version) -> Segment | None:
    if frame[_ETHERNET_HEADER - 2 : _ETHERNET_HEADER] != _TYPES[version]:
        return None
    packet = frame[_ETHERNET_HEADER:]
    if version == 4:
        start, end = 4 * (packet[0] & 15), struct.unpack_from("!H", packet, 2)[0]
        protocol, source = packet[9], packet[12:16]
    else:
        start, end = _IPV6_HEADER, _IPV6_HEADER + struct.unpack_from("!H", packet, 4)[0]
        protocol, source = packet[6], packet[8:24]
    if protocol != socket.IPPROTO_TCP:
        return None
    port, _, sequence, acknowledged, offset, flags, *_ = _TCP.unpack_from(packet, start)
    payload = packet[start + 4 * (offset >> 4) : end]
    length = len(payload) + bool(flags & 3)  # SYN and FIN
    return Segment(str(ipaddress.ip_address(source)), port, sequence + length, acknowledged, payload)


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
