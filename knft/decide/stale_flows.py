"""Detection of conntrack entries of removed UDP endpoints (docs/behaviour/conntrack.md#stale-udp-entries).

The code calls an entry a flow, as pyroute2 and netfilter do.

Addresses with ports are bytes here, as in the kernel's messages: there may be a million entries.
"""

import ipaddress
from collections.abc import Collection

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

PackedSocket = bytes
"""An address and a port in network byte order: 6 bytes for IPv4, 18 for IPv6."""

_PORT_BYTES = 2
_EndpointsByPort = dict[ServicePortName, frozenset[PackedSocket]]


def packed_socket(address: str, port: int) -> PackedSocket:
    """Return a canonical address and a port as bytes."""
    return packed_address(address) + _packed_port(port)


def packed_address(address: str) -> bytes:
    """Return a canonical address as bytes."""
    return ipaddress.ip_address(address).packed


def _packed_port(port: int) -> bytes:
    return port.to_bytes(_PORT_BYTES, "big")


class UdpFrontends:
    """The frontends of one family's UDP Services, with the serving endpoints of each, ready or not.

    One thread updates; the cost depends only on the size of the change. Other threads may call ``is_stale`` meanwhile;
    they see each frontend before or after the update.
    """

    def __init__(self) -> None:
        """Start without Services."""
        self._service_ports: dict[ServicePortName, tuple[frozenset[bytes], frozenset[PackedSocket]]] = {}
        self._by_key: dict[bytes, _EndpointsByPort] = {}
        """Keys are packed sockets and, for NodePorts, packed ports."""
        self._node_ports = 0
        """How many keys are of NodePorts; counted, because other threads cannot iterate over ``_by_key`` safely."""

    def __bool__(self) -> bool:
        """Whether there is any UDP Service."""
        return bool(self._by_key)

    def update(self, name: ServicePortName, port: ServicePort | None, endpoints: Collection[Endpoint]) -> bool:
        """Replace a Service port (None: removed); return whether a conntrack entry may have become stale or valid.

        Traffic policies and locality do not count: an existing connection may continue where a new one may not start.
        """
        previous = self._service_ports.pop(name, None)
        if name.protocol != "UDP" or port is None:
            current = None
        else:
            serving = frozenset(packed_socket(each.address, each.port) for each in endpoints if each.serving)
            current = self._service_ports[name] = (frozenset(_keys(port)), serving)
        if current == previous:
            return False
        previous_keys = previous[0] if previous is not None else frozenset[bytes]()
        for key in previous_keys - (current[0] if current is not None else frozenset()):
            self._remove_key(key, name)
        if current is not None:
            for key in current[0]:
                self._add_key(key, name, current[1])
        return True

    def _add_key(self, key: bytes, name: ServicePortName, serving: frozenset[PackedSocket]) -> None:
        by_port = self._by_key.get(key)
        if by_port is None:
            # Never empty: another thread may read it, and would take every entry for stale.
            self._by_key[key] = {name: serving}
            self._node_ports += _is_node_port(key)
        else:
            by_port[name] = serving

    def _remove_key(self, key: bytes, name: ServicePortName) -> None:
        by_port = self._by_key[key]
        if len(by_port) == 1:
            del self._by_key[key]
            self._node_ports -= _is_node_port(key)
        else:
            del by_port[name]

    def is_stale(
        self, original_destination: PackedSocket, reply_source: PackedSocket, node_port_addresses: Collection[bytes]
    ) -> bool:
        """Tell whether ``original_destination`` is a frontend and ``reply_source`` is not one of its serving endpoints.

        An entry without address translation is stale, too: a client's packet to 10.96.0.10:53 that arrived before the
        rules was not translated, so the entry expects the reply from 10.96.0.10:53, which is no endpoint.
        Entries to the port number of a NodePort count only for ``node_port_addresses``: other hosts may use the same
        number. If two Services claim a frontend, the endpoints of both are valid: an entry may be older
        than the decision which of them owns it.
        """
        endpoints_by_port = self._by_key.get(original_destination)
        if endpoints_by_port is None and original_destination[:-_PORT_BYTES] in node_port_addresses:
            endpoints_by_port = self._by_key.get(original_destination[-_PORT_BYTES:])
        if endpoints_by_port is None:
            return False
        # A copy, which the interpreter makes in one step: another thread may be adding or removing a Service port.
        return not any(reply_source in serving for serving in endpoints_by_port.copy().values())

    @property
    def has_node_ports(self) -> bool:
        """Whether any Service has a NodePort."""
        return self._node_ports > 0


def _is_node_port(key: bytes) -> bool:
    return len(key) == _PORT_BYTES


def _keys(port: ServicePort) -> list[bytes]:
    addresses = (port.cluster_ip, *port.load_balancer_vips, *port.external_ips)
    keys = [packed_socket(address, port.port) for address in addresses if address]
    return [*keys, _packed_port(port.node_port)] if port.node_port else keys
