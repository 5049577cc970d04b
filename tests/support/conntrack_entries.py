"""Creates conntrack entries without packets, and lists them with pyroute2, in the calling thread's namespace."""

import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket  # type: ignore[import-untyped]

from knft.kernel import conntrack_messages as messages
from tests.support.lab.plan import Version

TIMEOUT_SECONDS = 600
PROTOCOL_NUMBERS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
FIRST_CLIENTS: dict[Version, str] = {4: "11.0.0.0", 6: "2001:db8:11::"}
"""The first of many clients."""
_FAMILIES: dict[Version, int] = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}


class Entry(NamedTuple):
    """A conntrack entry: protocol, client, original destination and reply source, each an address and a port."""

    protocol: str
    client: tuple[str, int]
    original_destination: tuple[str, int]
    reply_source: tuple[str, int]
    zone: int = 0

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6."""
        return _FAMILIES[6 if ":" in self.client[0] else 4]


def add_entries(entries: Iterable[Entry]) -> None:
    """Create entries with a timeout of ten minutes."""
    for entry in entries:
        number = PROTOCOL_NUMBERS[entry.protocol]
        opened = _tuple(entry.family, number, entry.client, entry.original_destination)
        answered = _tuple(entry.family, number, entry.reply_source, entry.client)
        zone = {"zone": entry.zone} if entry.zone else {}
        with NFCTSocket(nfgen_family=entry.family) as conntrack:
            conntrack.entry("add", timeout=TIMEOUT_SECONDS, tuple_orig=opened, tuple_reply=answered, **zone)


def delete_entry(entry: Entry) -> None:
    """Delete an entry."""
    with NFCTSocket(nfgen_family=entry.family) as conntrack:
        conntrack.entry(
            "del",
            tuple_orig=_tuple(entry.family, PROTOCOL_NUMBERS[entry.protocol], entry.client, entry.original_destination),
        )


def listed_entries(version: Version) -> set[Entry]:
    """Return the entries of one family."""
    return set(entry_ids(version))


def entry_ids(version: Version) -> dict[Entry, int]:
    """Return the entries of one family with their CTA_ID, which differs for an entry that was created again."""
    family = _FAMILIES[version]
    with NFCTSocket(nfgen_family=family) as conntrack:
        return {_entry(family, found): int(found.get_attr("CTA_ID")) for found in conntrack.dump()}


def _tuple(family: int, number: int, source: tuple[str, int], destination: tuple[str, int]) -> Any:
    (saddr, sport), (daddr, dport) = source, destination
    return NFCTAttrTuple(family, saddr=saddr, daddr=daddr, proto=number, sport=sport, dport=dport)


def _entry(family: int, found: Any) -> Entry:
    names = {number: name for name, number in PROTOCOL_NUMBERS.items()}
    opened, answered = (_ends(family, found.get_attr(name)) for name in ("CTA_TUPLE_ORIG", "CTA_TUPLE_REPLY"))
    protocol = found.get_attr("CTA_TUPLE_ORIG").get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_NUM")
    return Entry(names.get(protocol, str(protocol)), opened[0], opened[1], answered[0], found.get_attr("CTA_ZONE") or 0)


def _ends(family: int, found: Any) -> tuple[tuple[str, int], tuple[str, int]]:
    version = "V4" if family == socket.AF_INET else "V6"
    network, transport = found.get_attr("CTA_TUPLE_IP"), found.get_attr("CTA_TUPLE_PROTO")
    source, destination = (network.get_attr(f"CTA_IP_{version}_{end}") for end in ("SRC", "DST"))
    ports = transport.get_attr("CTA_PROTO_SRC_PORT") or 0, transport.get_attr("CTA_PROTO_DST_PORT") or 0
    return (source, ports[0]), (destination, ports[1])


def add_many_entries(
    count: int,
    original_destination: tuple[str, int],
    reply_sources: Iterable[tuple[str, int]],
    protocol: str = "UDP",
    first_client: str = "",
) -> None:
    """Create ``count`` flows to one frontend, each from another client, with the endpoints in turn."""
    sources = [(ipaddress.ip_address(address).packed, struct.pack("!H", port)) for address, port in reply_sources]
    service_address, service_port = (
        ipaddress.ip_address(original_destination[0]).packed,
        struct.pack("!H", original_destination[1]),
    )
    version: Version = 6 if ":" in original_destination[0] else 4
    family, first_address = _FAMILIES[version], ipaddress.ip_address(first_client or FIRST_CLIENTS[version])
    client_port, number_of_protocol = struct.pack("!H", 4711), PROTOCOL_NUMBERS[protocol]
    with NFCTSocket(nfgen_family=family) as conntrack:
        for first in range(0, count, 100):
            requests = []
            for number in range(first, min(first + 100, count)):
                client = (first_address + number).packed
                endpoint, endpoint_port = sources[number % len(sources)]
                attributes = _tuple_attribute(
                    1, client, service_address, client_port, service_port, protocol=number_of_protocol
                )
                attributes += _tuple_attribute(
                    2, endpoint, client, endpoint_port, client_port, protocol=number_of_protocol
                )
                attributes += messages._attribute(7, struct.pack("!I", TIMEOUT_SECONDS))
                # NLM_F_REQUEST, NLM_F_CREATE and NLM_F_EXCL, without NLM_F_ACK.
                requests.append(messages._request(messages.FLOW, 0x601, number, family, attributes))
            conntrack.sendto(b"".join(requests), (0, 0))


def _tuple_attribute(
    kind: int, source: bytes, destination: bytes, source_port: bytes, destination_port: bytes, *, protocol: int
) -> bytes:
    first = 1 if len(source) == len(ipaddress.IPv4Address(0).packed) else 3  # CTA_IP_V4_SRC, CTA_IP_V6_SRC
    network = messages._attribute(first, source) + messages._attribute(first + 1, destination)
    transport = messages._attribute(1, bytes([protocol]))
    transport += messages._attribute(2, source_port) + messages._attribute(3, destination_port)
    return messages._nested(kind, messages._nested(1, network) + messages._nested(2, transport))


def client_endpoints(version: Version) -> Iterator[tuple[str, int]]:
    """Yield clients, each with another port."""
    address = "192.0.2.100" if version == 4 else "2001:db8:1::100"
    yield from ((address, port) for port in range(1024, 65536))
