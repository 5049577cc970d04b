"""Which UDP flows lead where no endpoint is any more (F.1): conntrack would send them there for ever.

Ends of flows are bytes here, an address followed by a port, as the kernel writes them: there may be a million of them.
"""

import ipaddress
from collections.abc import Collection

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

PackedSocket = bytes
"""An address and a port, both in network order: 6 bytes of IPv4, 18 of IPv6."""

_PORT_BYTES = 2
_Claims = dict[ServicePortName, frozenset[PackedSocket]]


def packed_socket(address: str, port: int) -> PackedSocket:
    """Return an address in canonical text and a port as one end of a flow."""
    return packed_address(address) + _packed_port(port)


def packed_address(address: str) -> bytes:
    """Return an address in canonical text as the kernel writes it."""
    return ipaddress.ip_address(address).packed


def _packed_port(port: int) -> bytes:
    return port.to_bytes(_PORT_BYTES, "big")


class UdpFrontends:
    """The frontends of one family's UDP Services, each with the endpoints that still serve, ready or not.

    One thread notes changes, each in time that depends on its own size alone; others may ask meanwhile, and find every
    frontend as it was or as it is.
    """

    def __init__(self) -> None:
        """Know no Service."""
        self._noted: dict[ServicePortName, tuple[frozenset[bytes], frozenset[PackedSocket]]] = {}
        self._by_key: dict[bytes, _Claims] = {}
        """By end, for addresses that are dialled, and by port alone for NodePorts."""
        self._node_ports = 0
        """How many keys are of NodePorts; counted, since nobody but who notes may go through them."""

    def __bool__(self) -> bool:
        """Whether there is any UDP Service."""
        return bool(self._by_key)

    def update(self, name: ServicePortName, port: ServicePort | None, endpoints: Collection[Endpoint]) -> bool:
        """Note what a Service port is now, None where it is gone; return whether a flow may be judged otherwise now.

        Any policy and any locality: what a new flow may not do, one that lives goes on doing.
        """
        before = self._noted.pop(name, None)
        if name.protocol != "UDP" or port is None:
            now = None
        else:
            serving = frozenset(packed_socket(each.address, each.port) for each in endpoints if each.serving)
            now = self._noted[name] = (frozenset(_keys(port)), serving)
        if now == before:
            return False
        gone = before[0] if before is not None else frozenset[bytes]()
        for key in gone - (now[0] if now is not None else frozenset()):
            self._unclaim(key, name)
        if now is not None:
            for key in now[0]:
                self._node_ports += _is_node_port(key) and key not in self._by_key
                # Replaced as a whole, and never changed: somebody may be reading it.
                self._by_key[key] = {**self._by_key.get(key, {}), name: now[1]}
        return True

    def _unclaim(self, key: bytes, name: ServicePortName) -> None:
        left = {other: serving for other, serving in self._by_key[key].items() if other != name}
        if left:
            self._by_key[key] = left
        else:
            del self._by_key[key]
            self._node_ports -= _is_node_port(key)

    def is_stale(
        self, original_destination: PackedSocket, reply_source: PackedSocket, node_port_addresses: Collection[bytes]
    ) -> bool:
        """Tell whether a flow that was opened to ``dialled`` has ``answering``, who is no endpoint of its frontend.

        One that was never translated answers from where it was dialled, and is stale too: nobody is there. Of flows to
        a NodePort's number only those to ``node_port_addresses``, since others are to strangers who use that number.
        Where two Services claim a frontend, the endpoints of both count.
        """
        claims = self._by_key.get(original_destination)
        if claims is None and original_destination[:-_PORT_BYTES] in node_port_addresses:
            claims = self._by_key.get(original_destination[-_PORT_BYTES:])
        return claims is not None and not any(reply_source in serving for serving in claims.values())

    @property
    def has_node_ports(self) -> bool:
        """Whether any of the Services has a NodePort."""
        return self._node_ports > 0


def _is_node_port(key: bytes) -> bool:
    return len(key) == _PORT_BYTES


def _keys(port: ServicePort) -> list[bytes]:
    addresses = (port.cluster_ip, *port.load_balancer_vips, *port.external_ips)
    keys = [packed_socket(address, port.port) for address in addresses if address]
    return [*keys, _packed_port(port.node_port)] if port.node_port else keys
