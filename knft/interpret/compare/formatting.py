"""Formats packet classes, outcomes and rules as text for reports and traces."""

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

_MAX_ITEMS = 3
"""The maximum number of listed items; longer lists end in "and more"."""


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
    """Return a source as text: kept, masqueraded, frontend, or an address."""
    return found if isinstance(found, str) else address(version, found)


def networks(version: IpVersion, where: Ranges) -> str:
    """Return addresses as a list of networks, or "any" for all addresses."""
    if where == ADDRESSES[version]:
        return "any"
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address  # noqa: PLR2004
    listed: list[str] = []
    for first, last in where:
        if len(listed) > _MAX_ITEMS:
            break
        found = ipaddress.summarize_address_range(kind(first), kind(last))
        listed += [str(network).removesuffix(f"/{network.max_prefixlen}") for network in found]
    return _some(listed)


def ports(where: Ranges) -> str:
    """Return ports as a list of ranges, or "any" for all ports."""
    if where == PORTS:
        return "any"
    return _some([str(first) if first == last else f"{first}-{last}" for first, last in where])


def _some(listed: list[str]) -> str:
    more = len(listed) - _MAX_ITEMS
    return ", ".join(listed[:_MAX_ITEMS]) + (" and more" if more > 0 else "")


def sender(version: IpVersion, packets: PacketClass, fields: PacketFields) -> str:
    """Return the sender of packets: origin, sources, interfaces and conntrack states, as far as they are limited."""
    parts = ["the node" if packets.origin == "node" else "the network", f"from {networks(version, fields.sources)}"]
    if packets.origin == "network" and "*" not in fields.inputs:
        parts.append(f"by {_some(sorted(fields.inputs))}")
    if "*" not in fields.outputs:
        parts.append(f"out by {_some(sorted(fields.outputs))}")
    if fields.states != STATES:
        parts.append(f"({' or '.join(sorted(fields.states))})")
    return " ".join(parts)


def destination(version: IpVersion, where: DestinationClass, packets: PacketClass, fields: PacketFields) -> str:
    """Return the destination of packets: addresses, ports and protocol."""
    protocol = PROTOCOL_NAMES.get(packets.protocol, f"protocol {packets.protocol}")
    target = networks(version, where.ranges)
    if where.is_local:
        target += " (the node's)"
    return f"{target} port {ports(fields.ports)}/{protocol}"


def client(version: IpVersion, known: Client) -> str:
    """Return the description of a client: new, or the endpoint that it was sent to."""
    number, port = known.endpoint
    if known is NEW_CLIENT or number is None:
        return "new"
    return f"was sent to {socket(version, number, port) if port is not None else address(version, number)}"


def rule_text(found: Rule) -> str:
    """Return a rule's text with its line number, if it has one."""
    return f"line {found.line}: {found.text}" if found.line else found.text


def change(left: str, right: str) -> str:
    """Return the text for a change from the left to the right outcome."""
    return f"{left} → {right}"


def outcomes(version: IpVersion, found: Shares) -> str:
    """Return the text for outcomes; outcomes that differ in the endpoint alone are combined."""
    alike: dict[tuple[str, str], list[str]] = {}
    for outcome, share in ordered_shares(found):
        alike.setdefault((_disposition(version, outcome), str(share)), []).append(
            endpoint(version, outcome) if outcome.is_translated else ""
        )
    return "; ".join(
        _with_endpoints(disposition, share, endpoints) for (disposition, share), endpoints in alike.items()
    )


def ordered_shares(found: Shares) -> list[tuple[Outcome, Fraction]]:
    """Return outcomes in a deterministic order: the most likely first, then by endpoint."""
    return sorted(found, key=lambda item: (-item[1], repr(item[0])))


def _disposition(version: IpVersion, outcome: Outcome) -> str:
    if outcome.disposition is not Disposition.DELIVERED:
        return {Disposition.REJECTED: "is refused", Disposition.DROPPED: "is dropped"}.get(
            outcome.disposition, "is undecided"
        )
    parts = ["reaches" if outcome.is_translated else "passes untranslated"]
    if outcome.source != "kept":
        parts.append(f"source {source(version, outcome.source)}")
    if outcome.seconds is not None:
        parts.append(f"affinity {outcome.seconds} s")
    return ", ".join(parts)


def _with_endpoints(disposition: str, share: str, endpoints: Iterable[str]) -> str:
    named = [item for item in endpoints if item]
    verb, comma, rest = disposition.partition(",")
    target = f" {_some(named)}" if named else ""
    often = "" if share == "1" else f" ({share}{' each' if len(named) > 1 else ''})"
    return f"{verb}{target}{comma}{rest}{often}"
