"""Explains a query from a source, and compares it with the kernel's rules."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from knft.explain.agreement import agreement
from knft.explain.explanation import ExplainedFrontend, ExplainedPort, Explanation
from knft.explain.frontend_index import FrontendIndex
from knft.explain.missing import address_kinds, missing_address, missing_node_port, unserved_address
from knft.explain.outcomes import ClientOutcome, Probes
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery
from knft.explain.replaced_sources import replaced_sources
from knft.explain.selection import (
    NODE_PORT,
    PortOfFamily,
    is_selected,
    node_port_owners,
    numbers_of,
    owner_at,
    ports_of_service,
)
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.source_ranges import allowed_clients
from knft.explain.sources import NodeRules, Source
from knft.explain.used import endpoint_use
from knft.explain.words import listed, number_text
from knft.model.addresses import is_loopback
from knft.model.names import ServicePortName

_NO_SERVICE = frozenset({Sentence.NO_SERVICE.kind, Sentence.UNKNOWN_SERVICE.kind, Sentence.KERNEL_NO_SERVICE.kind})


def explain(query: Query, source: Source, kernel: NodeRules | None = None) -> Explanation:
    """Explain a query; ``kernel`` are rules to compare with those of the source, if any."""
    found = _Explainer(source).explain(query)
    return found if kernel is None else replace(found, kernel=agreement(query, source, kernel))


class _Explainer:
    """Explains queries from one source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def explain(self, query: Query) -> Explanation:
        match query:
            case ServiceQuery():
                return self._service(query)
            case NodePortQuery():
                return self._node_port(query)
            case AddressQuery():
                return self._address(query)

    def _explanation(
        self,
        query: Query,
        conclusion: Iterable[Statement],
        ports: Iterable[ExplainedPort] = (),
        outcomes: tuple[ClientOutcome, ...] = (),
        *,
        found: bool = True,
    ) -> Explanation:
        source = self._source
        return Explanation(
            query.text,
            found,
            tuple(conclusion),
            source.name,
            source.node,
            source.zone,
            source.warnings,
            tuple(ports),
            outcomes,
        )

    def _service(self, query: ServiceQuery) -> Explanation:
        ports = ports_of_service(query.service, self._source)
        if not ports:
            reason = self._source.unserved(query.service)
            is_found = not any(each.kind in _NO_SERVICE for each in reason)
            return self._explanation(query, reason, found=is_found)
        chosen = [port for port in ports if is_selected(query, port, self._source)]
        if not chosen:
            return self._explanation(query, (self._no_such_port(query, ports),), found=False)
        explained = [self._source.explain_port(name, family) for name, family in chosen]
        sources = replaced_sources(frontend for port in explained for frontend in port.frontends)
        return self._explanation(query, (*_conclusion(str(query.service), explained), *sources), explained)

    def _no_such_port(self, query: ServiceQuery, ports: Iterable[PortOfFamily]) -> Statement:
        found = listed(dict.fromkeys(self._port_text(port) for port in ports))
        knows_services = all(index.knows_services for index in self._source.indexes.values())
        sentence = Sentence.NO_SUCH_PORT if knows_services else Sentence.KERNEL_NO_SUCH_PORT
        return state(sentence, service=query.service, port=repr(query.port), found=found)

    def _port_text(self, port: PortOfFamily) -> str:
        name, _ = port
        text = ", ".join(number_text(number, name.protocol) for number in numbers_of(port, self._source))
        return f"{name.port!r} ({text})" if name.port else text

    def _node_port(self, query: NodePortQuery) -> Explanation:
        owners = node_port_owners(query, self._source)
        if owners:
            return self._frontend(query, NODE_PORT, owners)
        unserved = self._source.unserved_node_port(query.port, query.protocol)
        if unserved:
            return self._explanation(query, unserved)
        indexes = tuple(self._source.indexes.values())
        return self._explanation(query, (missing_node_port(query, indexes),), found=False)

    def _address(self, query: AddressQuery) -> Explanation:
        probes, index = self._source.probes.get(query.family), self._source.indexes.get(query.family)
        if probes is None or index is None:
            no_table = state(Sentence.KERNEL_NO_TABLE, family=query.family.value)
            return self._explanation(query, (no_table,), found=False)
        on_loopback = self._on_loopback(query, index, probes) if query.port else None
        if on_loopback is not None:
            return on_loopback
        if query.port:
            owner = owner_at(query, index, probes)
            if owner is not None:
                return self._frontend(query, owner[1], ((owner[0], query.family),))
        elif there := index.ports_at(query.address):
            kinds = (
                state(Sentence.ADDRESS, what=query.address, kind=kind, services=services)
                for kind, services in address_kinds(there, index)
            )
            names = sorted({owner for _, owner in there})
            ports = [self._source.explain_port(name, query.family) for name in names]
            services = listed(dict.fromkeys(str(name.service) for name in names))
            clients = allowed_clients(query.address, ports)
            sources = replaced_sources(
                each for port in ports for each in port.frontends if each.at == query.address and each.kind != NODE_PORT
            )
            return self._explanation(query, (*kinds, *_conclusion(services, ports), *clients, *sources), ports)
        users = self._source.ports_of_endpoint(query.family, query.address, query.port)
        if users:
            return self._endpoint(query, users)
        outcomes = probes.outcomes(query.address, query.port, query.protocol) if query.port else ()
        unserved = self._unserved(query, index, probes)
        conclusion = unserved or tuple(missing_address(query, index, probes))
        return self._explanation(query, conclusion, (), outcomes, found=bool(unserved))

    def _on_loopback(self, query: AddressQuery, index: FrontendIndex, probes: Probes) -> Explanation | None:
        """Explain a NodePort at a loopback address where it is served or rejected; return None for all others."""
        served = self._source.port_on_loopback(query)
        if served is not None:
            port = self._source.explain_port(served, query.family)
            by_process = state(Sentence.NODE_PORT_ON_LOOPBACK, what=query.text, port=served)
            return self._explanation(query, (by_process, *_conclusion(str(served.service), [port])), (port,))
        rejected = _rejected_on_loopback(query, index, probes)
        if rejected is not None:
            outcomes = probes.outcomes(query.address, query.port, query.protocol)
            return self._explanation(query, (rejected,), (), outcomes)
        return None

    def _unserved(self, query: AddressQuery, index: FrontendIndex, probes: Probes) -> tuple[Statement, ...]:
        """Return which Service without rules has an address, NodePort or endpoint, and what its packets get."""
        if not index.ports_at(query.address):
            found = self._source.unserved_at(query.address)
            if found:
                is_proxied = found[0].kind == Sentence.PROXY_MODE.kind
                return found if is_proxied else (*found, unserved_address(query, index))
        if query.port and probes.is_node_address(query.address):
            if (None, query.protocol, query.port) in index.owners:
                return ()
            if found := self._source.unserved_node_port(query.port, query.protocol):
                return found
        return self._source.unserved_endpoint(query)

    def _frontend(
        self, query: AddressQuery | NodePortQuery, kind: str, owners: tuple[PortOfFamily, ...]
    ) -> Explanation:
        ports = [self._source.explain_port(name, family) for name, family in owners]
        services = listed(dict.fromkeys(str(name.service) for name, _ in owners))
        conclusion = (*_frontend_owners(query, kind, owners), *_conclusion(services, ports))
        clients = allowed_clients(query.address, ports, query.port) if isinstance(query, AddressQuery) else ()
        asked = (each for port in ports for each in port.frontends if _is_frontend(each, kind, query))
        return self._explanation(query, (*conclusion, *clients, *replaced_sources(asked)), ports)

    def _endpoint(self, query: AddressQuery, users: tuple[ServicePortName, ...]) -> Explanation:
        ports = [self._source.explain_port(name, query.family, query.address, query.port) for name in users]
        of_ports = state(Sentence.ENDPOINT, what=query.what, ports=listed(map(str, users)))
        return self._explanation(query, (of_ports, *endpoint_use(ports)), ports)


def _is_frontend(frontend: ExplainedFrontend, kind: str, query: AddressQuery | NodePortQuery) -> bool:
    """Tell whether a frontend is the one that a query names; a NodePort is one frontend at all addresses."""
    is_there = kind == NODE_PORT or (isinstance(query, AddressQuery) and frontend.at == query.address)
    return is_there and (frontend.kind, frontend.port) == (kind, query.port)


def _frontend_owners(query: Query, kind: str, owners: tuple[PortOfFamily, ...]) -> Iterator[Statement]:
    """Yield which Service port owns a frontend, for each family if they differ."""
    if len({name for name, _ in owners}) == 1:
        yield state(Sentence.FRONTEND, what=query.text, kind=kind, port=owners[0][0])
        return
    for name, family in owners:
        yield state(Sentence.FRONTEND_OF_FAMILY, what=query.text, kind=kind, port=name, family=family.value)


def _rejected_on_loopback(query: AddressQuery, index: FrontendIndex, probes: Probes) -> Statement | None:
    """Return that the rules reject packets to a NodePort at a loopback address, None if they do not."""
    owner = index.owners.get((None, query.protocol, query.port))
    if owner is None or not is_loopback(query.address):
        return None
    if {each.fate for each in probes.outcomes(query.address, query.port, query.protocol)} != {"rejected"}:
        return None
    return state(Sentence.NODE_PORT_REJECTED_ON_LOOPBACK, what=query.text, port=owner)


def _conclusion(services: str, ports: list[ExplainedPort]) -> tuple[Statement, ...]:
    """Return the conclusion about Service ports: of a single one the problems in each family, of several a count."""
    problems = [port for port in ports if port.problems]
    names = dict.fromkeys((port.port, port.protocol) for port in ports)
    if len(names) == 1:
        statements = (*(each for port in ports for each in port.problems), *(port.conclusion for port in ports))
        return tuple(dict.fromkeys(statements))
    if not problems:
        return (state(Sentence.ALL_SERVED, count=len(names), services=services),)
    count = len(dict.fromkeys((port.port, port.protocol) for port in problems))
    some = state(Sentence.SOME_UNSERVED, count=count, total=len(names), services=services)
    return (some, problems[0].problems[0])
