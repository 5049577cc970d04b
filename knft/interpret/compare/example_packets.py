"""Chooses one packet of a difference, and describes it by the flags of ``knft trace``."""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from knft.families import IpVersion
from knft.interpret.compare.findings import Difference
from knft.interpret.compare.formatting import format_address, format_frontend, format_socket
from knft.interpret.outcomes import PacketClass, PacketFields
from knft.interpret.ranges import EMPTY, LOOPBACK, Ranges, contains, intersection, single, subtract

_CLIENTS: dict[IpVersion, tuple[str, ...]] = {
    4: ("198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24", "10.0.0.0/8"),
    6: ("2001:db8:ffff::/64", "2001:db8::/32", "fd00::/8"),
}
"""Networks that a reader recognises, of which the first that fits has the client of an example."""
_PORTS = (80, 443, 8080, 53)
_SOURCE_PORTS = (40000,)
_INTERFACES = tuple(f"{name}{number}" for name in ("eth", "net") for number in range(10))
_FIRST_HOST = 7
_STATES = ("new", "established", "invalid")


class LocalAddresses(NamedTuple):
    """The known addresses of the node, and those of kube-ipvs0."""

    node: Ranges = EMPTY
    ipvs: Ranges = EMPTY


NO_ADDRESSES = LocalAddresses()


def trace_arguments(
    version: IpVersion, difference: Difference, fields: PacketFields, known: LocalAddresses
) -> list[str]:
    """Return the flags of ``knft trace`` for one packet; ``fields`` are those of the packets that differ."""
    packets = difference.packets
    earlier = _earlier_packets(difference, fields)
    sources = fields.sources if earlier is None else intersection(fields.sources, earlier.fields.sources)
    source = _source(version, packets, sources, known)
    return [
        f"--from={format_address(version, source)}",
        f"--to={format_frontend(version, packets.destination, packets.protocol, _number(fields.ports, _PORTS))}",
        *_limits(packets.fields, fields),
        *_client(version, difference, earlier),
        *_node_flags(version, packets, source, known),
    ]


def is_possible(difference: Difference, fields: PacketFields) -> bool:
    """Return whether a client with the affinity entries of a difference can have these fields."""
    return not difference.earlier or _earlier_packets(difference, fields) is not None


def _earlier_packets(difference: Difference, fields: PacketFields) -> PacketClass | None:
    """Return packets that made the client's affinity entries, with a source in ``fields``."""
    selects = difference.packets.is_source_selected
    same = (packets for packets in difference.earlier if packets.is_source_selected is selects)
    return next((packets for packets in same if intersection(fields.sources, packets.fields.sources)), None)


def _source(version: IpVersion, packets: PacketClass, sources: Ranges, known: LocalAddresses) -> int:
    """Return the source: a documentation address, or an address of the node, if the packets can have it."""
    if packets.origin == "network":
        sources = subtract(sources, single(packets.destination)) or sources
        return _first_inside(sources, map(_network, _CLIENTS[version]))
    loopback = LOOPBACK[version]
    usual = single(loopback[0][0] | 1)
    return _first_inside(sources, (subtract(known.node, loopback), usual, known.node))


def _network(text: str) -> Ranges:
    found = ipaddress.ip_network(text)
    return ((int(found[_FIRST_HOST]), int(found[-2])),)


def _first_inside(numbers: Ranges, preferred: Iterable[Ranges]) -> int:
    return next(
        (inside[0][0] for inside in (intersection(numbers, some) for some in preferred) if inside), numbers[0][0]
    )


def _number(numbers: Ranges, preferred: Iterable[int]) -> int:
    """Return one of the numbers; a preferred one, or the first that is not 0, if there is one."""
    usual = next((number for number in preferred if contains(numbers, number)), None)
    return usual if usual is not None else _first_inside(numbers, [((1, 65535),)])


def _limits(all_fields: PacketFields, fields: PacketFields) -> Iterator[str]:
    """Yield flags for values that only some packets of the class have."""
    if fields.source_ports != all_fields.source_ports:
        yield f"--from-port={_number(fields.source_ports, _SOURCE_PORTS)}"
    if fields.inputs != all_fields.inputs:
        yield f"--in-interface={_interface(fields.inputs, all_fields.inputs)}"
    if fields.outputs != all_fields.outputs:
        yield f"--out-interface={_interface(fields.outputs, all_fields.outputs)}"
    if "new" not in fields.states:
        yield f"--state={next(state for state in _STATES if state in fields.states)}"


def _interface(names: frozenset[str], all_names: frozenset[str]) -> str:
    """Return the name of an interface; one that rules name, unless the packets can only have others."""
    known = all_names - {"*"}
    listed = sorted(names - {"*"})
    prefix = listed[0].removesuffix("*") if listed else ""
    if listed and not listed[0].endswith("*"):
        return listed[0]
    candidates = [f"{prefix}{number}" for number in range(10)] if listed else _INTERFACES
    return next(
        (name for name in candidates if not any(_is_named(name, other, prefix) for other in known)), candidates[0]
    )


def _is_named(name: str, pattern: str, prefix: str) -> bool:
    """Return whether a name is an interface that rules treat in another way than all with ``prefix``."""
    if pattern.endswith("*"):
        return pattern[:-1] != prefix and len(pattern) > len(prefix) and name.startswith(pattern[:-1])
    return name == pattern


def _client(version: IpVersion, difference: Difference, earlier: PacketClass | None) -> Iterator[str]:
    number, port = difference.client.endpoint
    if number is None or port is None:
        return
    yield f"--remembered={format_socket(version, number, port)}"
    if earlier is not None and not _is_frontend_of(earlier, difference.packets):
        port = _number(earlier.fields.ports, _PORTS)
        target = format_frontend(version, earlier.destination, earlier.protocol, port)
        yield f"--remembered-through={target}"


def _is_frontend_of(earlier: PacketClass, packets: PacketClass) -> bool:
    there = earlier.destination, earlier.protocol, earlier.fields.ports
    return there == (packets.destination, packets.protocol, packets.fields.ports)


def _node_flags(version: IpVersion, packets: PacketClass, source: int, known: LocalAddresses) -> Iterator[str]:
    """Yield flags for addresses that the node may have, and for a process that lets the kernel choose the source."""
    of_node = {source: packets.origin == "node", packets.destination: packets.is_local}
    for address, is_of_node in of_node.items():
        if is_of_node and not contains(known.node, address):
            yield f"--node-has={format_address(version, address)}"
    if packets.is_source_selected and contains(known.ipvs, packets.destination) and source != packets.destination:
        yield "--unbound"
