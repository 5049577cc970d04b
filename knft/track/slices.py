"""EndpointSliceCache: applied and pending slices (docs/behaviour/tracking.md#endpoint-slices)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from knft.model import addresses
from knft.model.endpoint import Endpoint, EndpointTraits, endpoint_key
from knft.model.names import NamespacedName
from knft.model.objects import EndpointConditions, EndpointHints, EndpointSlice, NamedHint, SliceEndpoint
from knft.protocols import Protocol
from knft.track.size_limits import endpoints_error


class PortKey(NamedTuple):
    """Name and protocol of a slice's port; matches it with a Service port."""

    name: str
    protocol: Protocol

    def __str__(self) -> str:
        """Return the port for a message: ``'http' (TCP)``."""
        return f"{repr(self.name) if self.name else 'without a name'} ({self.protocol})"


def ports_of(slices: Iterable[EndpointSlice]) -> frozenset[PortKey]:
    """Return the ports of slices that have endpoints: a slice without endpoints has no ports either."""
    return frozenset(
        PortKey(port.name, port.protocol or "TCP")
        for item in slices
        if item.endpoints
        for port in item.ports or ()
        if port.name is not None and port.port
    )


_addresses_of = attrgetter("addresses")

EndpointsByPort = dict[PortKey, tuple[Endpoint, ...]]


class _PendingSlice(Struct, frozen=True):
    slice: EndpointSlice
    removed: bool


class _ServiceSlices(Struct):
    """The slices of one Service, by slice name.

    ``applied`` are the slices as of the last ``drain`` and ``expanded`` their endpoints; ``merged`` are these
    endpoints merged. The endpoints of a single slice are only in ``merged``: a second copy of 250 000 takes 11 MiB.
    ``pending`` are the slices that changed since.
    """

    applied: dict[str, EndpointSlice]
    pending: dict[str, _PendingSlice]
    expanded: dict[str, EndpointsByPort]
    merged: EndpointsByPort


class EndpointsChange(NamedTuple):
    """The endpoints of one Service before and after a ``drain``."""

    previous: EndpointsByPort
    current: EndpointsByPort


class EndpointSliceCache:
    """The slices of every Service; endpoints are local or not with respect to one node."""

    def __init__(self, node_name: str) -> None:
        """Endpoints whose ``nodeName`` is ``node_name`` are local."""
        self._node_name = node_name
        self._services: dict[NamespacedName, _ServiceSlices] = {}
        self._changed_services: dict[NamespacedName, None] = {}
        self.too_large: dict[NamespacedName, str] = {}
        """The Services with too many endpoints, and why each is too large; they have no endpoints here."""
        self.removals = 0
        """How many Services have lost their last slice, since the start."""

    def update_pending(self, service: NamespacedName, endpoint_slice: EndpointSlice, *, remove: bool) -> bool:
        """Record a changed or removed slice as pending; return whether that changes anything."""
        slices = self._services.get(service)
        if slices is None:
            if remove:
                return False
            slices = self._services[service] = _ServiceSlices({}, {}, {}, {})
        name = endpoint_slice.metadata.name
        record = _PendingSlice(endpoint_slice, remove)
        if not _differs(slices, name, record):
            return False
        slices.pending[name] = record
        self._changed_services[service] = None
        return True

    def endpoints(self, service: NamespacedName) -> EndpointsByPort:
        """Return one Service's endpoints as of the last ``drain``."""
        slices = self._services.get(service)
        return slices.merged if slices is not None else {}

    def slices(self, service: NamespacedName) -> tuple[EndpointSlice, ...]:
        """Return the slices of a Service, with the pending changes applied; from any thread."""
        slices = self._services.get(service)
        return tuple(_latest(slices)) if slices is not None else ()

    def services(self) -> tuple[NamespacedName, ...]:
        """Return the Services that have slices, pending ones included; from any thread."""
        return tuple(self._services)  # in one step of the interpreter

    def node_names(self) -> frozenset[str]:
        """Return the nodes of all endpoints, those of pending changes included; iterates over all endpoints."""
        return frozenset(
            endpoint.node_name
            for slices in self._services.values()
            for endpoint_slice in _latest(slices)
            for endpoint in endpoint_slice.endpoints or ()
            if endpoint.node_name
        )

    def drain(self) -> dict[NamespacedName, EndpointsChange]:
        """Apply the pending changes; return the endpoints of each changed Service before and after."""
        changes = {}
        changed_services, self._changed_services = self._changed_services, {}
        for service in changed_services:
            slices = self._services[service]
            previous = slices.merged
            self._apply(service, slices)
            changes[service] = EndpointsChange(previous, slices.merged)
            if not slices.applied:
                del self._services[service]
                self.removals += 1
        return changes

    def _apply(self, service: NamespacedName, slices: _ServiceSlices) -> None:
        for name, record in slices.pending.items():
            slices.expanded.pop(name, None)
            if record.removed:
                slices.applied.pop(name, None)
            else:
                slices.applied[name] = record.slice
        slices.pending = {}
        error = endpoints_error(slices.applied.values())
        if error:
            self.too_large[service] = error
            slices.expanded, slices.merged = {}, {}
            return
        self.too_large.pop(service, None)
        if len(slices.applied) == 1:
            (endpoint_slice,) = slices.applied.values()
            slices.expanded, slices.merged = {}, merge([expand_slice(endpoint_slice, self._node_name)])
            return
        for name in slices.applied.keys() - slices.expanded.keys():
            slices.expanded[name] = expand_slice(slices.applied[name], self._node_name)
        slices.merged = merge(slices.expanded[name] for name in sorted(slices.expanded))


def _latest(slices: _ServiceSlices) -> Iterator[EndpointSlice]:
    """Yield a Service's slices, with the pending changes applied; from any thread.

    Another thread may change or apply them meanwhile. Each copy is one step of the interpreter; the pending slices are
    copied first, because they become applied ones.
    """
    pending = slices.pending.copy()
    applied = slices.applied.copy()
    yield from (item for name, item in applied.items() if name not in pending)
    yield from (record.slice for record in pending.values() if not record.removed)


def _differs(slices: _ServiceSlices, name: str, record: _PendingSlice) -> bool:
    if name in slices.pending:
        return slices.pending[name] != record
    if name in slices.applied:
        return record.removed or slices.applied[name] != record.slice
    return not record.removed


def expand_slice(endpoint_slice: EndpointSlice, node_name: str) -> EndpointsByPort:
    """Return the endpoints of one slice by port, without unusable ports and endpoints."""
    by_port: EndpointsByPort = {}
    with_address = list(filter(_addresses_of, endpoint_slice.endpoints or ()))
    texts = addresses.canonical_texts([endpoint.addresses[0] for endpoint in with_address])
    traits = _traits_of(with_address, node_name)
    for port in endpoint_slice.ports or ():
        if port.name is None or not port.port:
            continue
        number, key = port.port, _port_key(port.name, port.protocol or "TCP")
        endpoints = tuple(map(Endpoint, zip(texts, repeat(number), strict=False), traits))
        # Two ports of a slice may have the same name and different numbers.
        by_port[key] = by_port[key] + endpoints if key in by_port else endpoints
    return by_port


@lru_cache(maxsize=1 << 10)
def _port_key(name: str, protocol: Protocol) -> PortKey:
    return PortKey(name, protocol)


def _traits_of(endpoints: Iterable[SliceEndpoint], node_name: str) -> list[EndpointTraits]:
    has_name = bool(node_name)
    return [
        _traits(endpoint.conditions, endpoint.hints, has_name and endpoint.node_name == node_name)
        for endpoint in endpoints
    ]


# Cached to share equal traits: 250 000 endpoints have few different ones.
@lru_cache(maxsize=1 << 10)
def _traits(
    conditions: EndpointConditions | None,
    hints: EndpointHints | None,
    is_local: bool,  # noqa: FBT001 - the cache takes positional arguments faster
) -> EndpointTraits:
    return EndpointTraits(
        is_local,
        ready=conditions is None or conditions.ready is not False,
        serving=conditions is None or conditions.serving is not False,
        terminating=conditions is not None and conditions.terminating is True,
        zone_hints=_names(hints.for_zones if hints else None),
        node_hints=_names(hints.for_nodes if hints else None),
    )


def _names(hints: tuple[NamedHint, ...] | None) -> frozenset[str]:
    return frozenset(hint.name for hint in hints or ())


def merge(parts: Iterable[EndpointsByPort]) -> EndpointsByPort:
    """Merge the endpoints of several slices, sorted by key (``address:port``).

    ``parts`` are in the order of the slices' names. If several slices contain a key, the last one wins unless
    that endpoint is terminating: a terminating endpoint never replaces another. (A pod that restarts may be in two
    slices for a while.)
    """
    merged: dict[PortKey, dict[str, Endpoint]] = {}
    for part in parts:
        for port, endpoints in part.items():
            if port not in merged and len(keyed := _by_key(endpoints)) == len(endpoints):
                merged[port] = keyed  # Of nearly all Services, which have one slice.
            else:
                _merge_into(merged.setdefault(port, {}), endpoints)
    return {port: tuple(map(by_key.__getitem__, sorted(by_key))) for port, by_key in merged.items() if by_key}


def _by_key(endpoints: Iterable[Endpoint]) -> dict[str, Endpoint]:
    return {
        f"{address}:{number}" if ":" not in address else endpoint_key(address, number): endpoint
        for endpoint in endpoints
        for address, number in [endpoint.target]
    }


def _merge_into(by_key: dict[str, Endpoint], endpoints: Iterable[Endpoint]) -> None:
    for endpoint in endpoints:
        key = endpoint_key(*endpoint.target)
        if not endpoint.traits.terminating or key not in by_key:
            by_key[key] = endpoint
