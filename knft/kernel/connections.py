"""Lists and counts the conntrack entries of TCP, UDP and SCTP through netlink.

``conntrack`` lists those of UDP only, without delaying a running sync. See docs/design/netlink-decoding.md.
"""

import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from msgspec import Struct

from knft.errors import KernelError
from knft.families import Family
from knft.kernel import netlink_dump, netlink_messages
from knft.protocols import SCTP, TCP, UDP, Protocol

_NETFILTER = 12  # NETLINK_NETFILTER
_NEW, _GET = 1 << 8 | 0, 1 << 8 | 1  # IPCTNL_MSG_CT_... of NFNL_SUBSYS_CTNETLINK
_NFGENMSG = struct.Struct("=BBH")
_ORIGINAL, _REPLY, _PROTOCOL_STATE, _ZONE = 1, 2, 4, 18  # CTA_...
_TCP_DETAILS, _TCP_STATE = 1, 1  # CTA_PROTOINFO_TCP, CTA_PROTOINFO_TCP_STATE
_TCP_ESTABLISHED = 3  # TCP_CONNTRACK_ESTABLISHED
_ADDRESSES, _PORTS = 1, 2  # CTA_TUPLE_IP, CTA_TUPLE_PROTO
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3  # CTA_PROTO_...
_SOURCE_AND_DESTINATION = {Family.IPV4: (1, 2), Family.IPV6: (3, 4)}  # CTA_IP_V4_..., CTA_IP_V6_...
_Key = TypeVar("_Key", bound=Hashable)
_PROTOCOLS: dict[int, Protocol] = {TCP: "TCP", UDP: "UDP", SCTP: "SCTP"}


class Connection(Struct, frozen=True, gc=False):
    """A conntrack entry.

    ``destination`` is the address and port to which the client sends, ``reply_source`` that which replies: the
    endpoint's, if packets are translated. Both are bytes: 6 for IPv4, 18 for IPv6.
    """

    protocol: Protocol
    destination: bytes
    reply_source: bytes


def open_connections(family: Family) -> tuple[Connection, ...]:
    """Return the entries of a family in zone 0, of TCP only those that are established; raise KernelError."""
    found: list[Connection] = []

    def begin() -> Callable[[bytes], None]:
        found.clear()
        return lambda payload: found.extend(_connections(family, payload, is_open=True))

    _stream(family, begin)
    return tuple(found)


def count_connections(family: Family, key: Callable[[Connection], _Key | None]) -> dict[_Key, int]:
    """Return the numbers of entries of a family in zone 0 by their key; those with None do not count.

    No entry is kept, so memory depends on the number of keys alone. Raises KernelError.
    """
    counts: Counter[_Key] = Counter()

    def begin() -> Callable[[bytes], None]:
        counts.clear()
        return add

    def add(payload: bytes) -> None:
        for connection in _connections(family, payload):
            found = key(connection)
            if found is not None:
                counts[found] += 1

    _stream(family, begin)
    return dict(counts)


def _stream(family: Family, begin: Callable[[], Callable[[bytes], None]]) -> None:
    try:
        netlink_dump.stream(_NETFILTER, _GET, _NFGENMSG.pack(family.number, 0, 0), _NEW, begin)
    except OSError as error:
        msg = f"cannot list conntrack entries: {error.strerror}; the kernel module nf_conntrack_netlink is required"
        raise KernelError(msg) from error


def _connections(family: Family, payload: bytes, *, is_open: bool = False) -> Iterator[Connection]:
    """Yield the entry of a message, if it is in zone 0 and of a protocol of Services; open TCP is established."""
    fields = netlink_messages.payloads(payload, _NFGENMSG.size, len(payload))
    if _ZONE in fields or _ORIGINAL not in fields or _REPLY not in fields:
        return
    original, reply = _nested(fields[_ORIGINAL]), _nested(fields[_REPLY])
    ports = _nested(original.get(_PORTS, b""))
    protocol = _PROTOCOLS.get(int.from_bytes(ports.get(_NUMBER, b""), "big"))
    if protocol is None:
        return
    if is_open and protocol == "TCP" and not _is_established(fields.get(_PROTOCOL_STATE, b"")):
        return
    source, destination = _SOURCE_AND_DESTINATION[family]
    addresses, reply_addresses = _nested(original.get(_ADDRESSES, b"")), _nested(reply.get(_ADDRESSES, b""))
    reply_ports = _nested(reply.get(_PORTS, b""))
    yield Connection(
        protocol,
        addresses.get(destination, b"") + ports.get(_DESTINATION_PORT, b""),
        reply_addresses.get(source, b"") + reply_ports.get(_SOURCE_PORT, b""),
    )


def _is_established(state: bytes) -> bool:
    return _nested(_nested(state).get(_TCP_DETAILS, b"")).get(_TCP_STATE) == bytes([_TCP_ESTABLISHED])


def _nested(data: bytes) -> dict[int, bytes]:
    return netlink_messages.payloads(data, 0, len(data))
