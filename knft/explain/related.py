"""Finds the Services whose EndpointSlices an explanation needs, for a source that reads no others."""

from collections.abc import Iterable

from knft.decide.frontends import claimed_frontends
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery
from knft.explain.selection import selected_ports
from knft.explain.sources import KernelSource
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import Service
from knft.model.plan import FrontendKey
from knft.track.expand import expand_service


class ClaimIndex:
    """The frontends that Services claim in either family."""

    def __init__(self, services: Iterable[Service]) -> None:
        """Index the Services."""
        self._claimed: dict[NamespacedName, set[FrontendKey]] = {}
        self._claimants: dict[FrontendKey, set[NamespacedName]] = {}
        self._at: dict[str, set[NamespacedName]] = {}
        for service in services:
            for family in Family:
                for port in (expand_service(service, family) or {}).values():
                    self._add(service.key, [frontend.key for frontend in claimed_frontends(port)])

    def _add(self, service: NamespacedName, keys: Iterable[FrontendKey]) -> None:
        self._claimed.setdefault(service, set()).update(keys)
        for key in keys:
            self._claimants.setdefault(key, set()).add(service)
            if key[0] is not None:
                self._at.setdefault(key[0], set()).add(service)

    def has_frontend(self, query: AddressQuery) -> bool:
        """Tell whether an address is that of a frontend, so that it is not explained as an endpoint."""
        if query.port:
            return (query.address, query.protocol, query.port) in self._claimants
        return query.address in self._at

    def named_by(self, query: Query) -> set[NamespacedName]:
        """Return the Services that a query names, directly or by a frontend."""
        match query:
            case ServiceQuery():
                return {query.service}
            case NodePortQuery():
                return set(self._claimants.get((None, query.protocol, query.port), ()))
            case AddressQuery():
                node_port = self._claimants.get((None, query.protocol, query.port), ())
                return self._at.get(query.address, set()).union(node_port)

    def claimants(self, services: Iterable[NamespacedName], keys: Iterable[FrontendKey]) -> set[NamespacedName]:
        """Return the Services that claim one of the frontends ``keys``, or one that ``services`` claim."""
        wanted = {*keys, *(key for service in services for key in self._claimed.get(service, ()))}
        return {service for key in wanted for service in self._claimants.get(key, ())}


def related_services(query: Query, claims: ClaimIndex, kernel: KernelSource | None) -> set[NamespacedName]:
    """Return the Services whose endpoints the explanation of a query depends on, if it names no endpoint.

    These are the Services that the query names, for the kernel's rules too if they are compared, and all other Services
    that claim the same frontends.
    """
    named, keys = claims.named_by(query), set[FrontendKey]()
    if kernel is not None:
        in_kernel = {name.service for name, _ in selected_ports(query, kernel)}
        named |= in_kernel
        keys = {
            key
            for index in kernel.indexes.values()
            for service in in_kernel
            for port in index.ports_of(service)
            for key in index.owned_by(port)
        }
    return named | claims.claimants(named, keys)
