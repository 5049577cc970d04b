"""Checks the open connections to Services: those that lead to no endpoint, or came to an address that knft refuses."""

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from knft.decide.stale_flows import frontend_keys, packed_address, packed_socket
from knft.explain.cluster import FamilyObjects
from knft.families import Family
from knft.kernel.connections import Connection
from knft.model.endpoint import endpoint_key
from knft.model.names import ServicePortName
from knft.preflight.facts import ObjectFacts, Unread
from knft.preflight.report import Finding, not_checked
from knft.protocols import Protocol

_PORT_BYTES = 2
_MAX_NAMED = 3
_MAX_SERVICE_PORTS = 10
_OTHER_ADDRESS = "let the clients use another address"
_REMEDY = f"{_OTHER_ADDRESS}, or accept NodePorts there with nodePortAddresses"
_LOOPBACK_REMEDY = f"{_OTHER_ADDRESS}; for TCP, knft can serve NodePorts there (docs/behaviour/loopback-nodeports.md)"


class _Misdirected(Struct, frozen=True):
    """Connections of a Service port that lead elsewhere: their number, and where."""

    name: ServicePortName
    count: int
    targets: tuple[bytes, ...]


def check_connections(found: ObjectFacts | Unread) -> Iterator[Finding]:
    """Yield the connections that knft treats differently, or that are not as the objects say."""
    if isinstance(found, Unread):
        yield not_checked("connections", found)
        return
    if isinstance(found.connections, Unread):
        yield not_checked("conntrack entries", found.connections)
        return
    misdirected = [
        each
        for family, objects in found.objects.items()
        for each in _misdirected(objects, found.accepting[family], found.connections[family])
    ]
    yield from map(_finding, misdirected[:_MAX_SERVICE_PORTS])
    if len(misdirected) > _MAX_SERVICE_PORTS:
        text = f"{len(misdirected) - _MAX_SERVICE_PORTS} more Service ports have connections that lead to no endpoint"
        yield Finding("warning", text, "capture the objects again, and run the command again")
    lost = Counter(
        each for family in found.objects for each in _at_refused_addresses(found, family, found.connections[family])
    )
    refused = sorted(lost.items())
    yield from (_refused_finding(*place, count) for place, count in refused[:_MAX_SERVICE_PORTS])
    if len(lost) > _MAX_SERVICE_PORTS:
        text = f"there are connections to NodePorts at {len(lost) - _MAX_SERVICE_PORTS} more addresses and ports"
        yield Finding("warning", text, _REMEDY)
    if not (misdirected or lost):
        count = sum(len(listed) for listed in found.connections.values())
        yield Finding("ok", f"no connection to a Service leads to another address than an endpoint ({count} checked)")


def _misdirected(
    objects: FamilyObjects, accepting: Collection[str], connections: Iterable[Connection]
) -> Iterator[_Misdirected]:
    frontends = _frontends(objects)
    at_node = frozenset(map(packed_address, accepting))
    valid: dict[ServicePortName, frozenset[bytes]] = {}
    found: dict[ServicePortName, list[bytes]] = defaultdict(list)
    for connection in connections:
        names = _names(frontends, connection, at_node)
        for name in names - valid.keys():
            valid[name] = _valid_targets(objects, name)
        is_untranslated = connection.reply_source == connection.destination
        # IPVS translates packets without conntrack's knowledge. knft deletes such an entry only if it is of UDP.
        if not names or (is_untranslated and connection.protocol != "UDP"):
            continue
        if not any(connection.reply_source in valid[name] for name in names):
            found[min(names)].append(connection.reply_source)
    for name in sorted(found):
        yield _Misdirected(name, len(found[name]), tuple(sorted(set(found[name]))))


def _at_refused_addresses(
    found: ObjectFacts, family: Family, connections: Iterable[Connection]
) -> Iterator[tuple[ServicePortName, bytes]]:
    """Yield the translated connections to NodePorts at addresses that do not accept NodePorts with knft."""
    objects, at_node = found.objects[family], frozenset(map(packed_address, found.accepting[family]))
    frontends, valid = _frontends(objects), dict[ServicePortName, frozenset[bytes]]()
    for connection in connections:
        address, port = connection.destination[:-_PORT_BYTES], connection.destination[-_PORT_BYTES:]
        is_served = family in found.loopback and connection.protocol == "TCP" and _is_loopback(address)
        is_translated = connection.reply_source != connection.destination
        is_frontend = (connection.protocol, connection.destination) in frontends
        if address in at_node or is_served or is_frontend or not is_translated:
            continue
        for name in frontends.get((connection.protocol, port), ()):
            if name not in valid:
                valid[name] = _valid_targets(objects, name)
            if connection.reply_source in valid[name]:
                yield name, connection.destination


def _is_loopback(address: bytes) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _refused_finding(name: ServicePortName, socket: bytes, count: int) -> Finding:
    connections = f"{count} {name.protocol} connection{'s' if count > 1 else ''}"
    address, port = _split(socket)
    text = f"{connections} to {name} came to NodePort {port} at {address}, which knft does not accept: new ones fail"
    return Finding("warning", text, _LOOPBACK_REMEDY if _is_loopback(socket[:-_PORT_BYTES]) else _REMEDY)


def _frontends(objects: FamilyObjects) -> Mapping[tuple[Protocol, bytes], set[ServicePortName]]:
    """Return the Service ports by protocol and frontend: an address and port, or the number of a NodePort."""
    found: dict[tuple[Protocol, bytes], set[ServicePortName]] = defaultdict(set)
    for name, port in objects.ports.items():
        for key in frontend_keys(port):
            found[name.protocol, key].add(name)
    return dict(found)


def _names(
    frontends: Mapping[tuple[Protocol, bytes], set[ServicePortName]],
    connection: Connection,
    at_node: Collection[bytes],
) -> set[ServicePortName]:
    protocol, destination = connection.protocol, connection.destination
    names = frontends.get((protocol, destination))
    if names is None and destination[:-_PORT_BYTES] in at_node:
        names = frontends.get((protocol, destination[-_PORT_BYTES:]))
    return names or set()


def _valid_targets(objects: FamilyObjects, name: ServicePortName) -> frozenset[bytes]:
    """Return the endpoints; of UDP only those that serve, because knft deletes the entries of the others."""
    return frozenset(
        packed_socket(endpoint.address, endpoint.port)
        for endpoint in objects.endpoints[name]
        if endpoint.serving or name.protocol != "UDP"
    )


def _finding(found: _Misdirected) -> Finding:
    protocol = found.name.protocol
    connections = f"1 {protocol} connection" if found.count == 1 else f"{found.count} {protocol} connections"
    more = f" and {len(found.targets) - _MAX_NAMED} more" if len(found.targets) > _MAX_NAMED else ""
    targets = ", ".join(map(_format_socket, found.targets[:_MAX_NAMED])) + more
    text = f"{connections} to {found.name}: the destination is {targets}, which is no endpoint in the objects"
    outdated = "if it is one by now, capture the objects again"
    if protocol == "UDP":
        text += "; knft deletes the conntrack entries at its first sync, so the next packets go to an endpoint"
        return Finding("warning", text, f"{outdated}; otherwise do nothing")
    text += "; open connections keep their destination, also with knft"
    return Finding("warning", text, f"{outdated}; otherwise restart the clients, which then connect to an endpoint")


def _format_socket(packed: bytes) -> str:
    return endpoint_key(*_split(packed))


def _split(packed: bytes) -> tuple[str, int]:
    """Return the address and the port of a packed socket."""
    return str(ipaddress.ip_address(packed[:-_PORT_BYTES])), int.from_bytes(packed[-_PORT_BYTES:], "big")
