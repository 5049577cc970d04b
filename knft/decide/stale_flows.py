"""Detection of conntrack entries of removed UDP endpoints (docs/behaviour/conntrack.md#stale-udp-entries).

The code calls an entry a flow, as pyroute2 and netfilter do.

Addresses with ports are bytes here, as in the kernel's messages: there may be a million entries.
"""

import ipaddress
from collections.abc import Collection
from collections.abc import Set as AbstractSet

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

PackedSocket = bytes
"""An address and a port in network byte order: 6 bytes for IPv4, 18 for IPv6."""

RemovedFrontends = dict[bytes, frozenset[PackedSocket]]
"""The endpoints that removed frontends had, and those that other frontends lost, by key."""

PORT_BYTES = 2
"""The length of a packed port, and of the key of a NodePort."""


def packed_socket(address: str, port: int) -> PackedSocket:
    """Return a canonical address and a port as bytes."""
    return packed_address(address) + packed_port(port)


def packed_address(address: str) -> bytes:
    """Return a canonical address as bytes."""
    return ipaddress.ip_address(address).packed


def packed_port(port: int) -> bytes:
    """Return a port as bytes."""
    return port.to_bytes(PORT_BYTES, "big")


class _NamesByKey:
    """Sets of Service ports by key. A set that another thread reads may grow or shrink, but is never empty."""

    def __init__(self) -> None:
        self.names: dict[bytes, AbstractSet[ServicePortName]] = {}

    def add(self, key: bytes, name: frozenset[ServicePortName]) -> bool:
        """Add a Service port, given as a set of one, which is shared by its keys; return whether the key is new."""
        names = self.names.get(key)
        if isinstance(names, set):
            names |= name
        else:
            self.names[key] = name if names is None else set(names | name)
        return names is None

    def discard(self, key: bytes, name: frozenset[ServicePortName]) -> bool:
        """Remove a Service port, given as a set of one; return whether the key is gone."""
        names = self.names[key]
        if isinstance(names, set) and len(names) > 1:
            names -= name
            return False
        del self.names[key]
        return True


class _UdpServicePort(Struct, frozen=True, gc=False):
    """The keys of a Service port's frontends, and its serving endpoints."""

    keys: frozenset[bytes] = frozenset()
    serving: frozenset[PackedSocket] = frozenset()


class UdpFrontends:
    """The frontends of one family's UDP Services, with the serving endpoints of each, ready or not.

    One thread updates; the cost depends only on the size of the change. Other threads may call ``is_stale`` meanwhile;
    they see each frontend before, during or after the update, with the endpoints of both.
    """

    def __init__(self) -> None:
        """Start without Services."""
        self._service_ports: dict[ServicePortName, _UdpServicePort] = {}
        self._by_key = _NamesByKey()
        """The Service ports by frontend. Keys are packed sockets and, for NodePorts, packed ports."""
        self._by_endpoint = _NamesByKey()
        """The Service ports by serving endpoint."""
        self._node_ports = 0
        """How many keys are of NodePorts; counted, because other threads cannot iterate over ``_by_key`` safely."""
        self._removed: RemovedFrontends = {}
        self._has_removed_node_ports = False

    def __bool__(self) -> bool:
        """Whether there is any UDP Service, or a removed frontend that is not forgotten yet."""
        return bool(self._by_key.names or self._removed)

    def removed(self) -> RemovedFrontends:
        """Return the removed frontends, for ``forget``; another thread may call this."""
        return dict(self._removed)

    def forget(self, removed: RemovedFrontends) -> None:
        """Drop removed frontends whose entries are deleted, unless they were removed again meanwhile."""
        for key, endpoints in removed.items():
            if self._removed.get(key) is endpoints:
                del self._removed[key]
        self._has_removed_node_ports = any(map(_is_node_port, self._removed))

    def update(self, name: ServicePortName, port: ServicePort | None, endpoints: Collection[Endpoint]) -> bool:
        """Replace a Service port (None: removed); return whether a conntrack entry may have become stale or valid.

        Traffic policies and locality do not count: an existing connection may continue where a new one may not start.
        """
        previous = self._service_ports.pop(name, None)
        if name.protocol != "UDP" or port is None:
            current = None
        else:
            serving = frozenset(packed_socket(each.address, each.port) for each in endpoints if each.serving)
            current = self._service_ports[name] = _UdpServicePort(frozenset(frontend_keys(port)), serving)
        if current == previous:
            return False
        self._replace(frozenset({name}), previous or _UdpServicePort(), current or _UdpServicePort())
        return True

    def _replace(self, name: frozenset[ServicePortName], previous: _UdpServicePort, current: _UdpServicePort) -> None:
        # Endpoints are added first and removed last: without them another thread would take entries for stale.
        for endpoint in current.serving - previous.serving:
            self._by_endpoint.add(endpoint, name)
        for key in current.keys - previous.keys:
            self._node_ports += self._by_key.add(key, name) and _is_node_port(key)
        lost = previous.serving - current.serving
        # Added before the frontend is removed, so that other threads see at least one of both. A frontend that stays
        # may be removed before the entries of the endpoints that it loses now are deleted. A Service that loses only an
        # address keeps its clients there: their endpoints still serve.
        for key in previous.keys:
            self._add_removed(key, lost)
        for key in previous.keys - current.keys:
            self._node_ports -= self._by_key.discard(key, name) and _is_node_port(key)
        for endpoint in lost:
            self._by_endpoint.discard(endpoint, name)

    def _add_removed(self, key: bytes, endpoints: frozenset[PackedSocket]) -> None:
        if endpoints:
            before = self._removed.get(key)
            # A Service with many frontends shares its endpoints among them.
            self._removed[key] = endpoints if before is None else before | endpoints
            self._has_removed_node_ports |= _is_node_port(key)

    def is_stale(
        self, original_destination: PackedSocket, reply_source: PackedSocket, node_port_addresses: Collection[bytes]
    ) -> bool:
        """Tell whether ``original_destination`` is a frontend and ``reply_source`` is not one of its serving endpoints.

        An entry without address translation is stale, too: a client's packet to 10.96.0.10:53 that arrived before the
        rules was not translated, so the entry expects the reply from 10.96.0.10:53, which is no endpoint.
        An entry of a removed frontend is stale if it leads to an endpoint that the frontend had: other programs may
        translate packets to the same address and port.
        Entries to the port number of a NodePort count only for ``node_port_addresses``: other hosts may use the same
        number. If two Services claim a frontend, the endpoints of both are valid: an entry may be older
        than the decision which of them owns it.
        """
        names = self._by_key.names.get(original_destination)
        if names is None and original_destination[:-PORT_BYTES] in node_port_addresses:
            names = self._by_key.names.get(original_destination[-PORT_BYTES:])
        if names is None:
            return bool(self._removed) and self._was_removed_endpoint(
                original_destination, reply_source, node_port_addresses
            )
        # The interpreter compares in one step, although another thread may be adding or removing a Service port. It
        # iterates over the smaller set: thousands of Services may claim a frontend, but few have the same endpoint.
        return names.isdisjoint(self._by_endpoint.names.get(reply_source, ()))

    def _was_removed_endpoint(
        self, original_destination: PackedSocket, endpoint: PackedSocket, node_port_addresses: Collection[bytes]
    ) -> bool:
        """Tell whether a removed frontend had this endpoint."""
        endpoints = self._removed.get(original_destination)
        if endpoints is None and original_destination[:-PORT_BYTES] in node_port_addresses:
            endpoints = self._removed.get(original_destination[-PORT_BYTES:])
        return endpoints is not None and endpoint in endpoints

    @property
    def has_node_ports(self) -> bool:
        """Whether any Service has a NodePort, or had one that is not forgotten yet."""
        return self._node_ports > 0 or self._has_removed_node_ports


def _is_node_port(key: bytes) -> bool:
    return len(key) == PORT_BYTES


def frontend_keys(port: ServicePort) -> list[bytes]:
    """Return the frontends of a Service port: packed sockets, and the packed number of its NodePort."""
    addresses = (port.cluster_ip, *port.load_balancer_vips, *port.external_ips)
    keys = [packed_socket(address, port.port) for address in addresses if address]
    return [*keys, packed_port(port.node_port)] if port.node_port else keys
