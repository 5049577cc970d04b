"""Parses the flags of ``knft trace`` that describe the packet."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from msgspec import Struct

from knft.errors import UsageError
from knft.families import IpVersion
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.outcomes import Origin, PacketClass, PacketFields
from knft.interpret.ranges import LOOPBACK, PORTS, Ranges, contains, ranges, single
from knft.interpret.rules import RuleSet, State
from knft.model.addresses import parse_address
from knft.protocols import PROTOCOL_NUMBERS

_FORM = "such as 10.96.0.10:80/tcp or [fd00:10:96::10]:80/tcp"
_TO = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<ipv4>[^\[\]:]*)):(?P<port>[^/:]*)(?:/(?P<protocol>.*))?", re.DOTALL)
_WITHOUT_PORT = re.compile(
    r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<ipv4>[^\[\]:]*))/(?P<protocol>[0-9]+|icmp|icmpv6)", re.DOTALL
)
_PROTOCOLS_WITHOUT_PORTS = {"icmp": 1, "icmpv6": 58}
_LAST_PROTOCOL = 255
_INTERFACE = re.compile(r"[^\s/*+]{1,15}")
_LAST_PORT = 65535


class SocketAddress(Struct, frozen=True):
    """An address, as a number, with a port."""

    version: IpVersion
    address: int
    port: int


class Target(Struct, frozen=True):
    """A destination: an address, a protocol, and a port unless the protocol has none."""

    version: IpVersion
    address: int
    port: int | None
    protocol: int


class PacketQuery(Struct, frozen=True):
    """The packet that the flags describe, independent of the node.

    ``more_node_addresses`` are addresses of the node that its rules are not rendered for. ``is_unbound`` tells whether
    the sending process lets the kernel select the source.
    """

    source: int
    to: Target
    source_port: int | None
    interface: str | None
    output_interface: str | None
    state: State
    remembered: SocketAddress | None
    remembered_through: Target | None
    more_node_addresses: Ranges
    is_unbound: bool

    @property
    def version(self) -> IpVersion:
        """The packet's IP version."""
        return self.to.version


def parse_query(options: dict[str, Any]) -> PacketQuery:
    """Return the packet that the flags describe; raise UsageError naming a flag."""
    to = _parse_target("--to", options["to"])
    version, source = _parse_address("--from", options["from_"].removeprefix("[").removesuffix("]"))
    if version != to.version:
        msg = f"--from: {options['from_']} is an IPv{version} address, and --to has one of IPv{to.version}"
        raise UsageError(msg)
    if _is_not_unicast(version, source):
        msg = f"--from: {options['from_']} is not a unicast address"
        raise UsageError(msg)
    remembered, through = _parse_remembered(options, to)
    addresses = [_parse_address("--node-has", text) for text in options["node_has"]]
    return PacketQuery(
        source,
        to,
        source_port=options["from_port"],
        interface=_parse_interface("--in-interface", options["in_interface"]),
        output_interface=_parse_interface("--out-interface", options["out_interface"]),
        state=options["state"],
        remembered=remembered,
        remembered_through=through,
        more_node_addresses=ranges((number, number) for family, number in addresses if family == version),
        is_unbound=options["unbound"],
    )


def _parse_interface(flag: str, name: str | None) -> str | None:
    if name is not None and not _INTERFACE.fullmatch(name):
        msg = f"{flag}: {name!r} is not the name of an interface"
        raise UsageError(msg)
    return name


def _parse_remembered(options: dict[str, Any], to: Target) -> tuple[SocketAddress | None, Target | None]:
    """Return the endpoint of the client's earlier connection, and the frontend of it."""
    remembered, through = options["remembered"], options["remembered_through"]
    if remembered is None:
        if through is not None:
            msg = "--remembered-through requires --remembered"
            raise UsageError(msg)
        return None, None
    endpoint = _parse_socket("--remembered", remembered, "such as 10.244.1.11:8080")
    frontend = None if through is None else _parse_target("--remembered-through", through)
    for flag, text, parsed in (
        ("--remembered", remembered, endpoint),
        ("--remembered-through", through, frontend),
    ):
        if parsed is not None and parsed.version != to.version:
            msg = f"{flag}: {text} is an IPv{parsed.version} address, and --to has one of IPv{to.version}"
            raise UsageError(msg)
    return endpoint, frontend


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


def _parse_target(flag: str, text: str) -> Target:
    without_port = _WITHOUT_PORT.fullmatch(text.lower())
    if without_port is not None:
        return _parse_target_without_port(flag, without_port)
    where, slash, word = text.partition("/")
    protocol = PROTOCOL_NUMBERS.get(word.lower()) if slash else PROTOCOL_NUMBERS["tcp"]
    if protocol is None:
        msg = f"{flag}: {word!r} is not a protocol of Services; use tcp, udp or sctp"
        raise UsageError(msg)
    found = _parse_socket(flag, where, _FORM)
    return Target(found.version, found.address, found.port, protocol)


def _parse_target_without_port(flag: str, found: re.Match[str]) -> Target:
    version, address = _parse_address(flag, found["ipv4"] if found["ipv6"] is None else found["ipv6"])
    name = found["protocol"]
    protocol = _PROTOCOLS_WITHOUT_PORTS.get(name) or int(name[:4])
    if protocol > _LAST_PROTOCOL or protocol in PROTOCOL_NUMBERS.values():
        problem = "needs a port" if protocol <= _LAST_PROTOCOL else "is not the number of a protocol"
        msg = f"{flag}: protocol {name} {problem}; {_FORM}"
        raise UsageError(msg)
    return Target(version, address, None, protocol)


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


def packet_class(query: PacketQuery, to: Target, rules: RuleSet, node_addresses: Ranges) -> PacketClass:
    """Return the query's packet to a target, on a node with these addresses; raise UsageError for an impossible one."""
    known = ranges((*node_addresses, *query.more_node_addresses))
    is_from_node = contains(known, query.source)
    _reject_impossible(query, to, is_from_node=is_from_node)
    names = frozenset({"*"} | (MentionedValues((rules,)).interfaces - {"lo", ""}))
    origin: Origin = "node" if is_from_node else "network"
    fields = PacketFields(
        PORTS if to.port is None else single(to.port),
        single(query.source),
        PORTS if query.source_port is None else single(query.source_port),
        inputs=frozenset({""}) if is_from_node else _interfaces(query.interface, names),
        outputs=_interfaces(query.output_interface, names),
        states=frozenset({query.state}),
    )
    is_source_selected = is_from_node and (query.is_unbound or query.source == to.address)
    return PacketClass(
        origin, to.protocol, to.address, contains(known, to.address), fields, is_source_selected=is_source_selected
    )


def _interfaces(name: str | None, names: frozenset[str]) -> frozenset[str]:
    return names if name is None else frozenset({name})


def _reject_impossible(query: PacketQuery, to: Target, *, is_from_node: bool) -> None:
    if is_from_node and query.interface is not None:
        msg = "--in-interface: --from is an address of the node, and the node's own packets have no input interface"
        raise UsageError(msg)
    if not is_from_node and query.is_unbound:
        msg = "--unbound: --from is not an address of the node"
        raise UsageError(msg)
    if not is_from_node and contains(LOOPBACK[query.version], to.address):
        msg = "--to: the kernel accepts packets to a loopback address only from the node; --from is not its address"
        raise UsageError(msg)
