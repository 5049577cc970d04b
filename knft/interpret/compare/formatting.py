"""Formats packet classes, outcomes and rules as text for reports and traces."""

import ipaddress
from collections.abc import Iterable, Iterator
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
"""The maximum number of listed items; lists with at least two more end in "and more"."""


def format_address(version: IpVersion, number: int) -> str:
    """Return an address as text."""
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))  # noqa: PLR2004


def format_socket(version: IpVersion, number: int, port: int) -> str:
    """Return an address and a port as text, IPv6 in brackets."""
    text = format_address(version, number)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def format_frontend(version: IpVersion, number: int, protocol: int, port: int) -> str:
    """Return a destination as ``knft trace --to`` takes it; protocols without ports by number, without a port."""
    if protocol in PROTOCOL_NAMES:
        return f"{format_socket(version, number, port)}/{PROTOCOL_NAMES[protocol]}"
    text = format_address(version, number)
    return f"[{text}]/{protocol}" if ":" in text else f"{text}/{protocol}"


def format_endpoint(version: IpVersion, outcome: Outcome) -> str:
    """Return the endpoint of an outcome."""
    if outcome.address is None:
        return f"port {outcome.port}"
    if outcome.port is None:
        return format_address(version, outcome.address)
    return format_socket(version, outcome.address, outcome.port)


def format_source(version: IpVersion, source: NewSource) -> str:
    """Return a source as text: kept, masqueraded, frontend, or an address."""
    return source if isinstance(source, str) else format_address(version, source)


def format_networks(version: IpVersion, addresses: Ranges) -> str:
    """Return addresses as a list of networks, or "any" for all addresses."""
    if addresses == ADDRESSES[version]:
        return "any"
    listed: list[str] = []
    for first, last in addresses:
        if len(listed) > _MAX_ITEMS + 1:
            break
        listed += [text.removesuffix("/32" if version == 4 else "/128") for text in cidrs(version, first, last)]  # noqa: PLR2004
    return _some(listed)


def cidrs(version: IpVersion, first: int, last: int) -> Iterator[str]:
    """Yield the fewest CIDRs that have all addresses of a range."""
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address  # noqa: PLR2004
    yield from map(str, ipaddress.summarize_address_range(kind(first), kind(last)))


def format_ports(numbers: Ranges) -> str:
    """Return ports as a list of ranges, or "any" for all ports."""
    if numbers == PORTS:
        return "any"
    return _some([str(first) if first == last else f"{first}-{last}" for first, last in numbers])


def _some(listed: list[str]) -> str:
    if len(listed) <= _MAX_ITEMS + 1:
        return ", ".join(listed)
    return f"{', '.join(listed[:_MAX_ITEMS])} and more"


def format_sender(version: IpVersion, packets: PacketClass, fields: PacketFields) -> str:
    """Return the sender of packets: origin, sources, interfaces and conntrack states, as far as they are limited."""
    parts = [
        "the node" if packets.origin == "node" else "the network",
        f"from {format_networks(version, fields.sources)}",
    ]
    if packets.origin == "network" and "*" not in fields.inputs:
        parts.append(f"in {_some(sorted(fields.inputs))}")
    if "*" not in fields.outputs:
        parts.append(f"out {_some(sorted(fields.outputs))}")
    if fields.states != STATES:
        parts.append(f"({' or '.join(sorted(fields.states))})")
    return " ".join(parts)


def format_destination(
    version: IpVersion, destination: DestinationClass, packets: PacketClass, fields: PacketFields
) -> str:
    """Return the destination of packets: addresses, ports and protocol."""
    protocol = PROTOCOL_NAMES.get(packets.protocol, f"protocol {packets.protocol}")
    target = format_networks(version, destination.ranges)
    if destination.is_local:
        target += " (an address of the node)"
    return f"{target} port {format_ports(fields.ports)}/{protocol}"


def format_client(version: IpVersion, client: Client) -> str:
    """Return the description of a client: new, or the endpoint that it was sent to."""
    number, port = client.endpoint
    if client is NEW_CLIENT or number is None:
        return "new"
    return (
        f"was sent to {format_socket(version, number, port) if port is not None else format_address(version, number)}"
    )


def format_rule(rule: Rule) -> str:
    """Return a rule's text with its line number, if it has one."""
    return f"line {rule.line}: {rule.text}" if rule.line else rule.text


def format_change(left: str, right: str) -> str:
    """Return the text for a change from the left to the right outcome."""
    return f"{left} → {right}"


def format_outcomes(version: IpVersion, shares: Shares) -> str:
    """Return the text for outcomes; outcomes that differ in the endpoint alone are combined."""
    alike: dict[tuple[str, str], list[str]] = {}
    for outcome, share in ordered_shares(shares):
        alike.setdefault((_disposition(version, outcome), str(share)), []).append(
            format_endpoint(version, outcome) if outcome.is_translated else ""
        )
    return "; ".join(
        _with_endpoints(disposition, share, endpoints) for (disposition, share), endpoints in alike.items()
    )


def ordered_shares(shares: Shares) -> list[tuple[Outcome, Fraction]]:
    """Return outcomes in a deterministic order: by descending share, then by endpoint."""
    return sorted(shares, key=lambda item: (-item[1], repr(item[0])))


def _disposition(version: IpVersion, outcome: Outcome) -> str:
    if outcome.disposition is Disposition.REJECTED:
        return f"is rejected with {outcome.reply}" if outcome.reply else "is rejected"
    if outcome.disposition is not Disposition.DELIVERED:
        return "is dropped" if outcome.disposition is Disposition.DROPPED else "is undecided"
    parts = ["reaches" if outcome.is_translated else "is delivered, not translated"]
    if outcome.source != "kept":
        parts.append(f"source {format_source(version, outcome.source)}")
    if outcome.seconds is not None:
        parts.append(f"affinity {outcome.seconds} s")
    if outcome.scheduler:
        parts.append(f"chosen by scheduler {outcome.scheduler}")
    if outcome.lost_mark:
        parts.append(f"mark bits {outcome.lost_mark:#x} overwritten")
    return ", ".join(parts)


def _with_endpoints(disposition: str, share: str, endpoints: Iterable[str]) -> str:
    named = [item for item in endpoints if item]
    verb, comma, rest = disposition.partition(",")
    target = f" {_some(named)}" if named else ""
    often = "" if share == "1" else f" ({share}{' each' if len(named) > 1 else ''})"
    return f"{verb}{target}{comma}{rest}{often}"
