"""Which endpoints were deleted from Service ports with ``knft.dev/drain: reset`` (docs/behaviour/draining.md).

Addresses with ports are bytes, as in ``stale_flows``.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from knft.decide.stale_flows import PORT_BYTES, PackedSocket, packed_port, packed_socket
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.plan import Frontend


class _DrainingPort(Struct, frozen=True, gc=False):
    """The keys of the frontends that a Service port owns, and its endpoints, whatever their conditions are."""

    keys: tuple[bytes, ...]
    endpoints: frozenset[PackedSocket]


class LostConnections(Struct, frozen=True):
    """The connections to end: deleted endpoints by the key of each frontend that led to them, and the Service ports."""

    endpoints: Mapping[bytes, frozenset[PackedSocket]]
    names: tuple[ServicePortName, ...]

    def all_endpoints(self) -> frozenset[PackedSocket]:
        """Return the endpoints of all frontends."""
        return frozenset(itertools.chain.from_iterable(self.endpoints.values()))

    def has_node_port(self) -> bool:
        """Whether one of the frontends is a NodePort."""
        return any(len(key) == PORT_BYTES for key in self.endpoints)

    def contain(
        self, original_destination: PackedSocket, reply_source: PackedSocket, node_port_addresses: Collection[bytes]
    ) -> bool:
        """Tell whether a connection to ``original_destination`` that ``reply_source`` answers is one of them."""
        if reply_source in self.endpoints.get(original_destination, ()):
            return True
        address, port = original_destination[:-PORT_BYTES], original_destination[-PORT_BYTES:]
        return reply_source in self.endpoints.get(port, ()) and address in node_port_addresses


class LostEndpoints:
    """The TCP Service ports of one family with ``knft.dev/drain: reset``, and the endpoints that they lost.

    Times are in seconds and never decrease. Not thread-safe.
    """

    def __init__(self) -> None:
        """Start without Service ports."""
        self._ports: dict[ServicePortName, _DrainingPort] = {}
        self._lost: dict[ServicePortName, dict[PackedSocket, float]] = {}

    def __bool__(self) -> bool:
        """Whether any Service port has lost an endpoint that is not forgotten."""
        return bool(self._lost)

    def remove(self, name: ServicePortName) -> None:
        """Remove a Service port, if it is one of these: it is deleted, or its annotation is.

        It keeps its connections, also those to endpoints that it lost before.
        """
        self._ports.pop(name, None)
        self._lost.pop(name, None)

    def update(
        self, name: ServicePortName, frontends: Iterable[Frontend], endpoints: Iterable[Endpoint], now: float
    ) -> None:
        """Add or replace a Service port, with the frontends that it owns. An endpoint that comes back is not lost."""
        previous, lost = self._ports.get(name), self._lost.pop(name, {})
        current = frozenset(packed_socket(each.address, each.port) for each in endpoints)
        self._ports[name] = _DrainingPort(tuple(map(_key, frontends)), current)
        if previous is not None:
            lost = dict.fromkeys(previous.endpoints, now) | lost
        still_lost = {endpoint: since for endpoint, since in lost.items() if endpoint not in current}
        if still_lost:
            self._lost[name] = still_lost

    def next_due(self, grace: float) -> float | None:
        """Return when the first endpoint will have been lost for ``grace`` seconds; None if none is lost."""
        times = [since for lost in self._lost.values() for since in lost.values()]
        return min(times) + grace if times else None

    def lost_until(self, time: float) -> LostConnections:
        """Return the connections to endpoints that were lost at ``time`` at the latest."""
        found: dict[bytes, frozenset[PackedSocket]] = {}
        names: list[ServicePortName] = []
        for name, lost in sorted(self._lost.items()):
            endpoints = frozenset(endpoint for endpoint, since in lost.items() if since <= time)
            if endpoints:
                names.append(name)
                # Only one Service port owns a frontend.
                found.update(dict.fromkeys(self._ports[name].keys, endpoints))
        return LostConnections(found, tuple(names))

    def forget_until(self, time: float) -> None:
        """Forget the endpoints that were lost at ``time`` at the latest: their connections have ended."""
        for name, lost in list(self._lost.items()):
            left = {endpoint: since for endpoint, since in lost.items() if since > time}
            if left:
                self._lost[name] = left
            else:
                del self._lost[name]


def _key(frontend: Frontend) -> bytes:
    """Return a packed socket; for a NodePort, the packed port."""
    return packed_port(frontend.port) if frontend.address is None else packed_socket(frontend.address, frontend.port)
