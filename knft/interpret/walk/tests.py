"""Decides tests for all packets of a class: passed, failed, or the class split in two."""

from collections.abc import Callable
from typing import Any, NamedTuple

from knft.interpret.outcomes import Box
from knft.interpret.ranges import common, contains, without
from knft.interpret.rules import (
    AddressType,
    Field,
    HasState,
    Interface,
    Marked,
    Never,
    State,
    ThroughServer,
    Translated,
    Within,
)
from knft.interpret.walk.packet import Packet


class Split(NamedTuple):
    """Some of the packets pass, the others do not."""

    passing: Box
    failing: Box


Decision = bool | Split


def _within(packet: Packet, test: Within) -> Decision:
    held = packet.numbers(test.field)
    if held is None:
        return False
    if isinstance(held, int):
        return contains(test.ranges, held) is not test.inverted
    inside = common(held, test.ranges)
    if not inside:
        return test.inverted
    if inside == held:
        return not test.inverted
    boxes = packet.narrowed(test.field, inside), packet.narrowed(test.field, without(held, test.ranges))
    return Split(*(reversed(boxes) if test.inverted else boxes))


def _marked(packet: Packet, test: Marked) -> Decision:
    return contains(test.ranges, packet.mark & test.mask) is not test.inverted


def _interface(packet: Packet, test: Interface) -> Decision:
    names = packet.interfaces(test.field)
    named = frozenset(name for name in names if any(_is_named(name, pattern) for pattern in test.names))
    if not named:
        return test.inverted
    if named == names:
        return not test.inverted
    if test.field is Field.INPUT:
        boxes = packet.box._replace(inputs=named), packet.box._replace(inputs=names - named)
    else:
        boxes = packet.box._replace(outputs=named), packet.box._replace(outputs=names - named)
    return Split(*(reversed(boxes) if test.inverted else boxes))


_NEW: frozenset[State] = frozenset({"new"})


def _is_named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _has_state(packet: Packet, test: HasState) -> Decision:
    # nat chains are asked about a connection's first packet, and the answer holds for all (nf_nat_core.c).
    states = _NEW if packet.in_nat else packet.box.states
    there = states & test.states
    if not there:
        return test.inverted
    if there == states:
        return not test.inverted
    boxes = packet.box._replace(states=there), packet.box._replace(states=states - there)
    return Split(*(reversed(boxes) if test.inverted else boxes))


def _translated(packet: Packet, test: Translated) -> Decision:
    is_so = packet.translated if test.what == "dnat" else packet.new_source is not None
    return is_so is not test.inverted


def _address_type(packet: Packet, test: AddressType) -> Decision:
    if test.field is Field.SOURCE:
        # Packets of the node itself have one of its addresses; the kernel drops others that claim to.
        kind = "local" if packet.origin == "node" else "unicast"
    elif packet.is_local:
        kind = "local"
    else:
        kind = "multicast" if _is_multicast(packet.destination) else "unicast"
    return (kind in test.types) is not test.inverted


def _is_multicast(address: int) -> bool:
    return 0xE0000000 <= address <= 0xEFFFFFFF or address >> 120 == 0xFF  # noqa: PLR2004 - 224.0.0.0/4 and ff00::/8


def _through_server(packet: Packet, test: ThroughServer) -> Decision:
    server = packet.server
    is_so = server is not None and (server.address, server.protocol, server.port) == (
        test.address,
        test.protocol,
        test.port,
    )
    return is_so is not test.inverted


def _never(_: Packet, __: Never) -> Decision:
    return False


DECIDE: dict[type, Callable[[Packet, Any], Decision]] = {
    Within: _within,
    Marked: _marked,
    Interface: _interface,
    HasState: _has_state,
    Translated: _translated,
    AddressType: _address_type,
    ThroughServer: _through_server,
    Never: _never,
}
"""How each kind of test is decided that looks at nothing but the packet."""
