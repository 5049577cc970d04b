"""Parses the flags of ``knft trace`` that describe the packet."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from msgspec import Struct

from knft.errors import UsageError
from knft.families import IpVersion
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.outcomes import PacketClass, PacketFields
from knft.interpret.ranges import LOOPBACK, PORTS, Ranges, contains, single
from knft.interpret.rules import RuleSet
from knft.model.addresses import parse_address
from knft.protocols import PROTOCOL_NUMBERS

_FORM = "such as 10.96.0.10:80/tcp or [fd00:10:96::10]:80/tcp"
_TO = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<ipv4>[^\[\]:]*)):(?P<port>[^/:]*)(?:/(?P<protocol>.*))?", re.DOTALL)
_INTERFACE = re.compile(r"[^\s/*+]{1,15}")
_LAST_PORT = 65535


class SocketAddress(Struct, frozen=True):
    """An address, as a number, with a port."""

    version: IpVersion
    address: int
    port: int


class PacketQuery(Struct, frozen=True):
    """The packet that the flags describe, independent of the node."""

    source: int
    to: SocketAddress
    protocol: int
    interface: str | None
    remembered: SocketAddress | None

    @property
    def version(self) -> IpVersion:
        """The packet's IP version."""
        return self.to.version


def parse_query(options: dict[str, Any]) -> PacketQuery:
    """Return the packet that the flags describe; raise UsageError naming a flag."""
    to, protocol = _parse_destination(options["to"])
    version, source = _parse_address("--from", options["from_"].removeprefix("[").removesuffix("]"))
    interface = options["in_interface"]
    remembered = options["remembered"]
    if version != to.version:
        msg = f"--from: {options['from_']} is an IPv{version} address, and --to has one of IPv{to.version}"
        raise UsageError(msg)
    if _is_not_unicast(version, source):
        msg = f"--from: {options['from_']} is not a unicast address"
        raise UsageError(msg)
    if interface is not None and not _INTERFACE.fullmatch(interface):
        msg = f"--in-interface: {interface!r} is not the name of an interface"
        raise UsageError(msg)
    endpoint = None if remembered is None else _parse_socket("--remembered", remembered, "such as 10.244.1.11:8080")
    if endpoint is not None and endpoint.version != to.version:
        msg = f"--remembered: {remembered} is an IPv{endpoint.version} address, and --to has one of IPv{to.version}"
        raise UsageError(msg)
    return PacketQuery(source, to, protocol, interface, endpoint)


def _is_not_unicast(version: IpVersion, address: int) -> bool:
    """Return whether an address is multicast, broadcast or unspecified."""
    parsed = (IPv4Address if version == 4 else IPv6Address)(address)  # noqa: PLR2004
    return parsed.is_multicast or parsed.is_unspecified or parsed == IPv4Address(0xFFFFFFFF)


def _parse_address(flag: str, text: str) -> tuple[IpVersion, int]:
    parsed = parse_address(text)
    if parsed is None:
        msg = f"{flag}: {text!r} is not an IP address"
        raise UsageError(msg)
    family, canonical = parsed
    return family.version, int(ip_address(canonical))


def _parse_destination(text: str) -> tuple[SocketAddress, int]:
    where, slash, word = text.partition("/")
    protocol = PROTOCOL_NUMBERS.get(word.lower()) if slash else PROTOCOL_NUMBERS["tcp"]
    if protocol is None:
        msg = f"--to: {word!r} is not a protocol of Services; use tcp, udp or sctp"
        raise UsageError(msg)
    return _parse_socket("--to", where, _FORM), protocol


def _parse_socket(flag: str, text: str, form: str) -> SocketAddress:
    found = _TO.fullmatch(text)
    if found is None:
        more = "; write an IPv6 address in brackets" if text.count(":") > 1 else ""
        msg = f"{flag}: {text!r} is not an address with a port, {form}{more}"
        raise UsageError(msg)
    version, address = _parse_address(flag, found["ipv4"] if found["ipv6"] is None else found["ipv6"])
    port = found["port"]
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= _LAST_PORT):  # noqa: PLR2004
        msg = f"{flag}: {port!r} is not a port from 1 to {_LAST_PORT}"
        raise UsageError(msg)
    return SocketAddress(version, address, int(port))


def packet_class(query: PacketQuery, rules: RuleSet, node_addresses: Ranges) -> PacketClass:
    """Return the packet's class on a node with these addresses; raise UsageError for an impossible packet."""
    is_local = contains(node_addresses, query.to.address)
    outputs = frozenset({"*"} | (MentionedValues((rules,)).interfaces - {"lo", ""}))
    fields = PacketFields(
        single(query.to.port), single(query.source), PORTS, outputs=outputs, states=frozenset({"new"})
    )
    if contains(node_addresses, query.source):
        if query.interface is not None:
            msg = "--in-interface: --from is an address of the node, and the node's own packets have no input interface"
            raise UsageError(msg)
        is_source_selected = query.source == query.to.address
        return PacketClass(
            "node", query.protocol, query.to.address, is_local, fields, is_source_selected=is_source_selected
        )
    if contains(LOOPBACK[query.version], query.to.address):
        msg = "--to: the kernel accepts packets to a loopback address only from the node; --from is not its address"
        raise UsageError(msg)
    inputs = outputs if query.interface is None else frozenset({query.interface})
    return PacketClass("network", query.protocol, query.to.address, is_local, fields._replace(inputs=inputs))
