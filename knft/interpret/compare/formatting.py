"""Classes of packets and outcomes in words."""

import ipaddress
from collections.abc import Iterable
from fractions import Fraction

from knft.families import IpVersion
from knft.interpret.compare.findings import NEW_CLIENT, Client
from knft.interpret.compare.packet_classes import DestinationClass
from knft.interpret.compare.partition import Shares
from knft.interpret.outcomes import STATES, Disposition, NewSource, Outcome, PacketClass, PacketFields
from knft.interpret.ranges import ADDRESSES, PORTS, Ranges
from knft.interpret.rules import Rule
from knft.protocols import PROTOCOL_NAMES

_MANY = 3
"""So many of a list are named; of more, the first and the number of the rest."""


def address(version: IpVersion, number: int) -> str:
    """Return an address as text."""
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))  # noqa: PLR2004


def socket(version: IpVersion, number: int, port: int) -> str:
    """Return an address and a port as text, IPv6 in brackets."""
    text = address(version, number)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def endpoint(version: IpVersion, outcome: Outcome) -> str:
    """Return the endpoint of an outcome."""
    if outcome.address is None:
        return f"port {outcome.port}"
    if outcome.port is None:
        return address(version, outcome.address)
    return socket(version, outcome.address, outcome.port)


def source(version: IpVersion, found: NewSource) -> str:
    """Return a source: kept, masqueraded, frontend, or an address."""
    return found if isinstance(found, str) else address(version, found)


def networks(version: IpVersion, where: Ranges) -> str:
    """Return addresses as networks; "any" where they are all."""
    if where == ADDRESSES[version]:
        return "any"
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address  # noqa: PLR2004
    listed: list[str] = []
    for first, last in where:
        if len(listed) > _MANY:
            break
        found = ipaddress.summarize_address_range(kind(first), kind(last))
        listed += [str(network).removesuffix(f"/{network.max_prefixlen}") for network in found]
    return _some(listed)


def ports(where: Ranges) -> str:
    """Return ports; "any" where they are all."""
    if where == PORTS:
        return "any"
    return _some([str(first) if first == last else f"{first}-{last}" for first, last in where])


def _some(listed: list[str]) -> str:
    more = len(listed) - _MANY
    return ", ".join(listed[:_MANY]) + (" and more" if more > 0 else "")


def sender(version: IpVersion, packets: PacketClass, box: PacketFields) -> str:
    """Return who sends: where from, by which interface, and what packets if not all."""
    parts = ["the node" if packets.origin == "node" else "the network", f"from {networks(version, box.sources)}"]
    if packets.origin == "network" and "*" not in box.inputs:
        parts.append(f"by {_some(sorted(box.inputs))}")
    if "*" not in box.outputs:
        parts.append(f"out by {_some(sorted(box.outputs))}")
    if box.states != STATES:
        parts.append(f"({' or '.join(sorted(box.states))})")
    return " ".join(parts)


def destination(version: IpVersion, where: DestinationClass, packets: PacketClass, box: PacketFields) -> str:
    """Return what is dialled."""
    protocol = PROTOCOL_NAMES.get(packets.protocol, f"protocol {packets.protocol}")
    whom = networks(version, where.ranges)
    if where.is_local:
        whom += " (the node's)"
    return f"{whom} port {ports(box.ports)}/{protocol}"


def client(version: IpVersion, known: Client) -> str:
    """Return what is known of a client."""
    number, port = known.endpoint
    if known is NEW_CLIENT or number is None:
        return "new"
    return f"was sent to {socket(version, number, port) if port is not None else address(version, number)}"


def rule(found: Rule) -> str:
    """Return a rule with its line, where it has one."""
    return f"line {found.line}: {found.text}" if found.line else found.text


def change(left: str, right: str) -> str:
    """Return what clients see on the left, and what on the right, of the words for either."""
    return f"{left} → {right}"


def outcomes(version: IpVersion, found: Shares) -> str:
    """Return what clients see, alike outcomes together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for outcome, share in in_order(found):
        alike.setdefault((_fate(version, outcome), str(share)), []).append(
            endpoint(version, outcome) if outcome.is_translated else ""
        )
    return "; ".join(_said(fate, share, endpoints) for (fate, share), endpoints in alike.items())


def in_order(found: Shares) -> list[tuple[Outcome, Fraction]]:
    """Return what clients see in an order that is always the same: the likeliest first, then by endpoint."""
    return sorted(found, key=lambda item: (-item[1], repr(item[0])))


def _fate(version: IpVersion, outcome: Outcome) -> str:
    if outcome.disposition is not Disposition.DELIVERED:
        return {Disposition.REJECTED: "is refused", Disposition.DROPPED: "is dropped"}.get(
            outcome.disposition, "is undecided"
        )
    parts = ["reaches" if outcome.is_translated else "passes untranslated"]
    if outcome.source != "kept":
        parts.append(f"source {source(version, outcome.source)}")
    if outcome.seconds is not None:
        parts.append(f"stays for {outcome.seconds} s")
    return ", ".join(parts)


def _said(fate: str, share: str, endpoints: Iterable[str]) -> str:
    named = [item for item in endpoints if item]
    verb, comma, rest = fate.partition(",")
    whom = f" {_some(named)}" if named else ""
    often = "" if share == "1" else f" ({share}{' each' if len(named) > 1 else ''})"
    return f"{verb}{whom}{comma}{rest}{often}"
