"""Finds the Service ports that a query names, in a source."""

from knft.explain.frontend_index import KIND_TEXTS, FrontendIndex
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery
from knft.explain.sources import Source
from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import FrontendKind

PortOfFamily = tuple[ServicePortName, Family]
NODE_PORT = KIND_TEXTS[FrontendKind.NODE_PORT]


def selected_ports(query: Query, source: Source) -> tuple[PortOfFamily, ...]:
    """Return the Service ports that a query names, as their frontends or endpoints or directly."""
    match query:
        case ServiceQuery():
            ports = ports_of_service(query.service, source)
            return tuple(port for port in ports if is_selected(query, port, source))
        case NodePortQuery():
            return node_port_owners(query, source)
        case AddressQuery():
            return tuple((name, query.family) for name in _ports_at(query, source))


def ports_of_service(service: NamespacedName, source: Source) -> tuple[PortOfFamily, ...]:
    """Return the ports of a Service that own or claim a frontend, by port, then by family."""
    found = ((name, family) for family, index in source.indexes.items() for name in index.ports_of(service))
    return tuple(sorted(found, key=lambda item: (item[0], item[1].value)))


def is_selected(query: ServiceQuery, port: PortOfFamily, source: Source) -> bool:
    """Tell whether a query for a Service names one of its ports, or all."""
    return query.port is None or query.port == port[0].port or query.port in map(str, numbers_of(port, source))


def numbers_of(port: PortOfFamily, source: Source) -> tuple[int, ...]:
    """Return the numbers that a Service port has at its addresses."""
    name, family = port
    return tuple(sorted({key[2] for key in source.indexes[family].claimed_by(name) if key[0] is not None}))


def node_port_owners(query: NodePortQuery, source: Source) -> tuple[PortOfFamily, ...]:
    """Return the owner of a NodePort in each family."""
    key = (None, query.protocol, query.port)
    found = ((index.owners.get(key), family) for family, index in source.indexes.items())
    return tuple((owner, family) for owner, family in found if owner is not None)


def _ports_at(query: AddressQuery, source: Source) -> tuple[ServicePortName, ...]:
    index, probes = source.indexes.get(query.family), source.probes.get(query.family)
    if index is None or probes is None:
        return ()
    if query.port:
        owner = owner_at(query, index, probes)
        if owner is not None:
            return (owner[0],)
    elif there := index.ports_at(query.address):
        return tuple(sorted({owner for _, owner in there}))
    return source.ports_of_endpoint(query.family, query.address, query.port)


def owner_at(query: AddressQuery, index: FrontendIndex, probes: Probes) -> tuple[ServicePortName, str] | None:
    """Return the Service port that owns an address with a port, and the kind of the frontend."""
    key = (query.address, query.protocol, query.port)
    if key in index.owners:
        return index.owners[key], index.kinds[key, index.owners[key]]
    node_port = index.owners.get((None, query.protocol, query.port))
    if node_port is None or not probes.is_node_address(query.address):
        return None
    outcomes = probes.outcomes(query.address, query.port, query.protocol)
    accepts = any(outcome.fate != "delivered" or outcome.endpoints for outcome in outcomes)
    return (node_port, NODE_PORT) if accepts else None
