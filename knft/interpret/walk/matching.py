"""Evaluates tests for all packets of a class: all pass, all fail, or the class is split in two."""

from collections.abc import Callable
from typing import Any, NamedTuple

from knft.interpret.outcomes import PacketFields
from knft.interpret.ranges import contains, intersection, single, subtract
from knft.interpret.rules import (
    AddressType,
    Field,
    HasState,
    Interface,
    Marked,
    Never,
    State,
    Translated,
    ViaVirtualServer,
    Within,
)
from knft.interpret.walk.packet import PacketState


class Split(NamedTuple):
    """The packets that pass a test, and those that fail."""

    passing: PacketFields
    failing: PacketFields


Decision = bool | Split


def _within(packet: PacketState, test: Within) -> Decision:
    values = packet.numbers(test.field)
    if values is None:
        return False
    if isinstance(values, int):
        return contains(test.ranges, values) is not test.inverted
    inside = intersection(values, test.ranges)
    if not inside:
        return test.inverted
    if inside == values:
        return not test.inverted
    parts = packet.with_field(test.field, inside), packet.with_field(test.field, subtract(values, test.ranges))
    return Split(*(reversed(parts) if test.inverted else parts))


def _marked(packet: PacketState, test: Marked) -> Decision:
    return contains(test.ranges, packet.mark & test.mask) is not test.inverted


def _interface(packet: PacketState, test: Interface) -> Decision:
    names = packet.interfaces(test.field)
    named = frozenset(name for name in names if any(_is_named(name, pattern) for pattern in test.names))
    if not named:
        return test.inverted
    if named == names:
        return not test.inverted
    if test.field is Field.INPUT:
        parts = packet.fields._replace(inputs=named), packet.fields._replace(inputs=names - named)
    else:
        parts = packet.fields._replace(outputs=named), packet.fields._replace(outputs=names - named)
    return Split(*(reversed(parts) if test.inverted else parts))


_NEW: frozenset[State] = frozenset({"new"})


def _is_named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _has_state(packet: PacketState, test: HasState) -> Decision:
    # Only the first packet of a connection traverses nat chains; the result holds for later packets (nf_nat_core.c).
    states = _NEW if packet.in_nat else packet.fields.states
    if not packet.is_tracked:
        # A packet without a conntrack entry matches "invalid" (nft_ct.c, xt_conntrack.c).
        return ("invalid" in test.states) is not test.inverted
    matching = states & test.states
    if not matching:
        return test.inverted
    if matching == states:
        return not test.inverted
    parts = packet.fields._replace(states=matching), packet.fields._replace(states=states - matching)
    return Split(*(reversed(parts) if test.inverted else parts))


def _translated(packet: PacketState, test: Translated) -> Decision:
    if not packet.is_tracked:
        return False
    new = packet.new_source
    if test.kind == "snat" and isinstance(new, int) and packet.source is None:
        # The kernel does not set the SNAT status bit if the new source equals the old one (nf_nat_core.c).
        return _within(packet, Within(Field.ORIGINAL_SOURCE, single(new), not test.inverted))
    is_translated = packet.is_translated if test.kind == "dnat" else new is not None and new != packet.source
    return is_translated is not test.inverted


def _address_type(packet: PacketState, test: AddressType) -> Decision:
    if test.field is Field.SOURCE:
        # The node sends from its own addresses; the kernel drops packets from the network with these sources.
        kind = "local" if packet.origin == "node" else "unicast"
    elif packet.is_local:
        kind = "local"
    else:
        kind = "multicast" if _is_multicast(packet.destination) else "unicast"
    return (kind in test.types) is not test.inverted


def _is_multicast(address: int) -> bool:
    return 0xE0000000 <= address <= 0xEFFFFFFF or address >> 120 == 0xFF  # noqa: PLR2004 - 224.0.0.0/4 and ff00::/8


def _via_virtual_server(packet: PacketState, test: ViaVirtualServer) -> Decision:
    server = packet.server
    is_match = server is not None and (server.address, server.protocol, server.port) == (
        test.address,
        test.protocol,
        test.port,
    )
    return is_match is not test.inverted


def _never(_: PacketState, __: Never) -> Decision:
    return False


EVALUATORS: dict[type, Callable[[PacketState, Any], Decision]] = {
    Within: _within,
    Marked: _marked,
    Interface: _interface,
    HasState: _has_state,
    Translated: _translated,
    AddressType: _address_type,
    ViaVirtualServer: _via_virtual_server,
    Never: _never,
}
"""The functions that evaluate tests, by the type of test, for all tests that depend on the packet alone."""
