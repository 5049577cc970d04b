"""Conntrack's entries, made without packets and read back by pyroute2, in the namespace of the calling thread."""

import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket  # type: ignore[import-untyped]

from knft.kernel import flow_messages as messages
from tests.support.lab.plan import Version

LIFE = 600
NUMBERS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
_FAMILIES: dict[Version, int] = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}


class Entry(NamedTuple):
    """One entry: protocol, the client, whom it dialled, and who answers, each an address and a port."""

    protocol: str
    client: tuple[str, int]
    dialled: tuple[str, int]
    answering: tuple[str, int]
    zone: int = 0

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6."""
        return _FAMILIES[6 if ":" in self.client[0] else 4]


def make(entries: Iterable[Entry]) -> None:
    """Make entries, which live for ten minutes."""
    for entry in entries:
        number = NUMBERS[entry.protocol]
        opened = _tuple(entry.family, number, entry.client, entry.dialled)
        answered = _tuple(entry.family, number, entry.answering, entry.client)
        zone = {"zone": entry.zone} if entry.zone else {}
        with NFCTSocket(nfgen_family=entry.family) as conntrack:
            conntrack.entry("add", timeout=LIFE, tuple_orig=opened, tuple_reply=answered, **zone)


def delete(entry: Entry) -> None:
    """Delete an entry."""
    with NFCTSocket(nfgen_family=entry.family) as conntrack:
        conntrack.entry("del", tuple_orig=_tuple(entry.family, NUMBERS[entry.protocol], entry.client, entry.dialled))


def present(version: Version) -> set[Entry]:
    """Return the entries of one family."""
    return set(numbered(version))


def numbered(version: Version) -> dict[Entry, int]:
    """Return the entries of one family with the numbers that the kernel has given them: a new one has another."""
    family = _FAMILIES[version]
    with NFCTSocket(nfgen_family=family) as conntrack:
        return {_entry(family, found): int(found.get_attr("CTA_ID")) for found in conntrack.dump()}


def _tuple(family: int, number: int, source: tuple[str, int], destination: tuple[str, int]) -> Any:
    (saddr, sport), (daddr, dport) = source, destination
    return NFCTAttrTuple(family, saddr=saddr, daddr=daddr, proto=number, sport=sport, dport=dport)


def _entry(family: int, found: Any) -> Entry:
    names = {number: name for name, number in NUMBERS.items()}
    opened, answered = (_ends(family, found.get_attr(name)) for name in ("CTA_TUPLE_ORIG", "CTA_TUPLE_REPLY"))
    protocol = found.get_attr("CTA_TUPLE_ORIG").get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_NUM")
    return Entry(names.get(protocol, str(protocol)), opened[0], opened[1], answered[0], found.get_attr("CTA_ZONE") or 0)


def _ends(family: int, found: Any) -> tuple[tuple[str, int], tuple[str, int]]:
    version = "V4" if family == socket.AF_INET else "V6"
    network, transport = found.get_attr("CTA_TUPLE_IP"), found.get_attr("CTA_TUPLE_PROTO")
    source, destination = (network.get_attr(f"CTA_IP_{version}_{end}") for end in ("SRC", "DST"))
    ports = transport.get_attr("CTA_PROTO_SRC_PORT") or 0, transport.get_attr("CTA_PROTO_DST_PORT") or 0
    return (source, ports[0]), (destination, ports[1])


def make_many(count: int, dialled: tuple[str, int], answering: Iterable[tuple[str, int]]) -> None:
    """Make so many IPv4 flows of UDP to one frontend, each answered by the next in turn, from a client each."""
    answers = [(ipaddress.ip_address(address).packed, struct.pack("!H", port)) for address, port in answering]
    virtual, virtual_port = ipaddress.ip_address(dialled[0]).packed, struct.pack("!H", dialled[1])
    client_port = struct.pack("!H", 4711)
    with NFCTSocket(nfgen_family=int(socket.AF_INET)) as conntrack:
        for first in range(0, count, 100):
            requests = []
            for number in range(first, min(first + 100, count)):
                client = (ipaddress.ip_address("11.0.0.0") + number).packed
                endpoint, endpoint_port = answers[number % len(answers)]
                attributes = _written(1, client, virtual, client_port, virtual_port)
                attributes += _written(2, endpoint, client, endpoint_port, client_port)
                attributes += messages._attribute(7, struct.pack("!I", LIFE))
                # NLM_F_REQUEST, NLM_F_CREATE and NLM_F_EXCL; no answer is asked for.
                requests.append(messages._request(messages.FLOW, 0x601, number, int(socket.AF_INET), attributes))
            conntrack.sendto(b"".join(requests), (0, 0))


def _written(kind: int, source: bytes, destination: bytes, source_port: bytes, destination_port: bytes) -> bytes:
    network = messages._attribute(1, source) + messages._attribute(2, destination)
    transport = messages._attribute(1, bytes([socket.IPPROTO_UDP]))
    transport += messages._attribute(2, source_port) + messages._attribute(3, destination_port)
    return messages._nested(kind, messages._nested(1, network) + messages._nested(2, transport))


def clients(version: Version) -> Iterator[tuple[str, int]]:
    """Yield one client after the other, each with another port."""
    address = "192.0.2.100" if version == 4 else "2001:db8:1::100"
    yield from ((address, port) for port in range(1024, 65536))
