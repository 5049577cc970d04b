"""The packet that ``knft trace`` follows, from the words of the command line."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from msgspec import Struct

from knft.errors import UsageError
from knft.interpret.constants import Constants
from knft.interpret.outcomes import Box, Packets
from knft.interpret.ranges import LOOPBACK, PORTS, Ranges, contains, single
from knft.interpret.rules import IpVersion, RuleSet
from knft.model.addresses import parse_address
from knft.model.names import Family

_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_FORM = "such as 10.96.0.10:80/tcp or [fd00:10:96::10]:80/tcp"
_TO = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<ipv4>[^\[\]:]*)):(?P<port>[^/:]*)(?:/(?P<protocol>.*))?", re.DOTALL)
_INTERFACE = re.compile(r"[^\s/*+]{1,15}")
_LAST_PORT = 65535


class Socket(Struct, frozen=True):
    """An address with a port; addresses are numbers."""

    version: IpVersion
    address: int
    port: int


class Asked(Struct, frozen=True):
    """Who dials what: all that was said of the packet, and nothing of what node it meets."""

    source: int
    to: Socket
    protocol: int
    interface: str | None
    remembered: Socket | None

    @property
    def version(self) -> IpVersion:
        """The packet's family."""
        return self.to.version


def asked(options: dict[str, Any]) -> Asked:
    """Return what the command line asks; raise UsageError naming a flag."""
    to, protocol = _destination(options["to"])
    version, source = _number("--from", options["from_"].removeprefix("[").removesuffix("]"))
    interface = options["in_interface"]
    remembered = options["remembered"]
    if version != to.version:
        msg = f"--from: {options['from_']} is an IPv{version} address, and --to has one of IPv{to.version}"
        raise UsageError(msg)
    if _is_nobodys(version, source):
        msg = f"--from: no packet comes from {options['from_']}: it is not one host's address"
        raise UsageError(msg)
    if interface is not None and not _INTERFACE.fullmatch(interface):
        msg = f"--in-interface: {interface!r} is not the name of an interface"
        raise UsageError(msg)
    endpoint = None if remembered is None else _socket("--remembered", remembered, "such as 10.244.1.11:8080")
    if endpoint is not None and endpoint.version != to.version:
        msg = f"--remembered: {remembered} is not of --to's family, IPv{to.version}"
        raise UsageError(msg)
    return Asked(source, to, protocol, interface, endpoint)


def _is_nobodys(version: IpVersion, address: int) -> bool:
    """Tell whether an address is a group's, everybody's or nobody's, as no sender's is."""
    parsed = (IPv4Address if version == 4 else IPv6Address)(address)  # noqa: PLR2004
    return parsed.is_multicast or parsed.is_unspecified or parsed == IPv4Address(0xFFFFFFFF)


def _number(flag: str, text: str) -> tuple[IpVersion, int]:
    parsed = parse_address(text)
    if parsed is None:
        msg = f"{flag}: {text!r} is not an IP address"
        raise UsageError(msg)
    family, canonical = parsed
    return (4 if family is Family.IPV4 else 6), int(ip_address(canonical))


def _destination(text: str) -> tuple[Socket, int]:
    where, slash, word = text.partition("/")
    protocol = _PROTOCOLS.get(word.lower()) if slash else _PROTOCOLS["tcp"]
    if protocol is None:
        msg = f"--to: {word!r} is no protocol of Services, which are tcp, udp and sctp"
        raise UsageError(msg)
    return _socket("--to", where, _FORM), protocol


def _socket(flag: str, text: str, form: str) -> Socket:
    found = _TO.fullmatch(text)
    if found is None:
        more = "; an IPv6 address stands in brackets" if text.count(":") > 1 else ""
        msg = f"{flag}: {text!r} is not an address with a port, {form}{more}"
        raise UsageError(msg)
    version, address = _number(flag, found["ipv4"] if found["ipv6"] is None else found["ipv6"])
    port = found["port"]
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= _LAST_PORT):  # noqa: PLR2004
        msg = f"{flag}: {port!r} is not a port, which is a number from 1 to {_LAST_PORT}"
        raise UsageError(msg)
    return Socket(version, address, int(port))


def packets(asked: Asked, rules: RuleSet, own: Ranges) -> Packets:
    """Return the packet as it meets a node with some addresses; raise UsageError where it cannot be."""
    is_local = contains(own, asked.to.address)
    outputs = frozenset({"*"} | (Constants((rules,)).interfaces - {"lo", ""}))
    box = Box(single(asked.to.port), single(asked.source), PORTS, outputs=outputs, states=frozenset({"new"}))
    if contains(own, asked.source):
        if asked.interface is not None:
            msg = "--in-interface: --from is the node's own address, and its own packets come in by no interface"
            raise UsageError(msg)
        return Packets("node", asked.protocol, asked.to.address, is_local, box)
    if contains(LOOPBACK[asked.version], asked.to.address):
        msg = "--to: the kernel takes no packet to a loopback address from outside the node; --from is not the node's"
        raise UsageError(msg)
    inputs = outputs if asked.interface is None else frozenset({asked.interface})
    return Packets("network", asked.protocol, asked.to.address, is_local, box._replace(inputs=inputs))
