"""Decodes the keys and values of sets and maps, as the kernel sends them by netlink.

a key:   its parts; in a concatenation each part is padded to 4 bytes
a type:  6 bits for each part
"""

import ipaddress
import itertools
import socket
import struct
from collections.abc import Callable

from msgspec import Struct

from knft.kernel.netlink_messages import padded
from knft.nft.objects import Key
from knft.protocols import PROTOCOL_NAMES

INTEGER, IPV4, IPV6, _PROTOCOL, PORT, PRIORITY = 4, 7, 8, 12, 13, 23
"""The numbers of libnftables' types integer, ipv4_addr, ipv6_addr, inet_proto, inet_service and classid."""
HOST_NUMBER = struct.Struct("=I")
"""An integer or a packet's priority, in the byte order of the machine."""
_TYPE_BITS = 6


class KeyPart(Struct, frozen=True):
    """One part of a key or value: its size in bytes without padding, and the function that decodes it.

    ``decode_address`` is the same function if the part is an address.
    """

    size: int
    decode: Callable[[bytes], str | int]
    decode_address: Callable[[bytes], str] | None = None


def _ipv6(raw: bytes) -> str:
    text = socket.inet_ntop(socket.AF_INET6, raw)
    # inet_ntop writes some addresses with a dotted IPv4 part, Python does not.
    return str(ipaddress.IPv6Address(raw)) if "." in text else text


KEY_PARTS = {
    INTEGER: KeyPart(4, lambda raw: int(HOST_NUMBER.unpack(raw)[0])),
    IPV4: KeyPart(4, socket.inet_ntoa, socket.inet_ntoa),
    IPV6: KeyPart(16, _ipv6, _ipv6),
    _PROTOCOL: KeyPart(1, lambda raw: PROTOCOL_NAMES.get(raw[0], raw[0])),
    PRIORITY: KeyPart(4, lambda raw: int(HOST_NUMBER.unpack(raw)[0])),
    PORT: KeyPart(2, lambda raw: int.from_bytes(raw, "big")),
}


def split_type(number: int) -> tuple[int, ...]:
    """Return the types of the parts of a type."""
    parts = []
    while number:
        parts.append(number & ((1 << _TYPE_BITS) - 1))
        number >>= _TYPE_BITS
    return tuple(reversed(parts))


class KeyCodec:
    """Decodes keys, or values that are not verdicts; ``size`` is theirs in bytes.

    Its methods raise ValueError if the size is wrong.
    """

    def __init__(self, parts: tuple[KeyPart, ...]) -> None:
        """``parts`` are those of a key or value, in order."""
        self.parts = parts
        starts = (0, *itertools.accumulate(padded(part.size) for part in parts))
        self.size = parts[0].size if len(parts) == 1 else starts[-1]
        self._pieces = tuple(
            (part, part.decode, start, start + part.size) for part, start in zip(parts, starts, strict=False)
        )

    def _check(self, raw: bytes) -> None:
        if len(raw) != self.size:
            msg = f"{len(raw)} bytes instead of {self.size}"
            raise ValueError(msg)

    def decode(self, raw: bytes) -> Key:
        """Return the decoded parts."""
        self._check(raw)
        return tuple([decode(raw[start:end]) for _, decode, start, end in self._pieces])

    def decode_range(self, first: bytes, last: bytes) -> Key:
        """Return the decoded parts; a part that differs must be a network."""
        self._check(first)
        self._check(last)
        return tuple(
            decode(first[start:end])
            if first[start:end] == last[start:end]
            else _network(part, first[start:end], last[start:end])
            for part, decode, start, end in self._pieces
        )


def _network(part: KeyPart, first: bytes, last: bytes) -> str:
    """Return a range of addresses as CIDR; raise ValueError if it is not a network."""
    low, size = int.from_bytes(first, "big"), int.from_bytes(last, "big") - int.from_bytes(first, "big") + 1
    if part.decode_address is None or size <= 0 or size & (size - 1) or low % size:
        msg = f"{first.hex()} to {last.hex()} is not a network"
        raise ValueError(msg)
    return f"{part.decode(first)}/{8 * part.size - size.bit_length() + 1}"
