"""Explains a query from a source, and compares it with the kernel's rules."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from msgspec.structs import replace

from knft.explain.agreement import agreement
from knft.explain.explanation import ExplainedPort, Explanation
from knft.explain.facts import Facts
from knft.explain.missing import address_kinds, missing_address, missing_node_port, unserved_address
from knft.explain.outcomes import ClientOutcome, Probes
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.sources import NodeRules, Source
from knft.explain.words import listed, number_text
from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName

_NO_SERVICE = frozenset({Sentence.NO_SERVICE.name.lower(), Sentence.KERNEL_NO_SERVICE.name.lower()})


def explain(query: Query, source: Source, kernel: NodeRules | None = None) -> Explanation:
    """Explain a query; ``kernel`` are rules to compare with those of the source, if any."""
    found = _Explainer(source).explain(query)
    return found if kernel is None else replace(found, kernel=agreement(query, found, source, kernel))


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

    @cached_property
    def _families(self) -> tuple[Family, ...]:
        return tuple(family for family in Family if family in self._source.probes)

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
        names = self._ports_of(query.service)
        if not names:
            reason = self._source.unserved(query.service)
            is_found = not any(each.kind in _NO_SERVICE for each in reason)
            return self._explanation(query, reason, found=is_found)
        chosen = [(name, family) for name, family in names if _is_port(query, name, self._numbers(name, family))]
        if not chosen:
            found = listed(dict.fromkeys(self._port_text(name, family) for name, family in names))
            wanted = state(Sentence.NO_SUCH_PORT, service=query.service, port=repr(query.port), found=found)
            return self._explanation(query, (wanted,), found=False)
        ports = [self._source.explain_port(name, family) for name, family in chosen]
        return self._explanation(query, _conclusion(str(query.service), ports), ports)

    def _ports_of(self, service: NamespacedName) -> list[tuple[ServicePortName, Family]]:
        """Return the ports of a Service that own or claim a frontend, by port, then by family."""
        found = {
            (name, family)
            for family in self._families
            for names in self._source.facts[family].claims.values()
            for name in names
            if name.service == service
        }
        return sorted(found, key=lambda item: (item[0], item[1].value))

    def _numbers(self, name: ServicePortName, family: Family) -> frozenset[str]:
        claims = self._source.facts[family].claims
        return frozenset(str(key[2]) for key, names in claims.items() if key[0] is not None and name in names)

    def _port_text(self, name: ServicePortName, family: Family) -> str:
        numbers = sorted(self._numbers(name, family), key=int)
        text = ", ".join(number_text(int(number), name.protocol) for number in numbers)
        return f"{name.port!r} ({text})" if name.port else text

    def _node_port(self, query: NodePortQuery) -> Explanation:
        key = (None, query.protocol, query.port)
        owners = [
            (self._source.facts[family].owners[key], family)
            for family in self._families
            if key in self._source.facts[family].owners
        ]
        if owners:
            return self._frontend(query, "a NodePort", owners)
        facts = next(iter(self._source.facts.values()), Facts())
        return self._explanation(query, (missing_node_port(query, facts),), found=False)

    def _address(self, query: AddressQuery) -> Explanation:
        probes, facts = self._source.probes.get(query.family), self._source.facts.get(query.family)
        if probes is None or facts is None:
            no_table = state(Sentence.KERNEL_NO_TABLE, family=query.family.value)
            return self._explanation(query, (no_table,), found=False)
        if query.port:
            owner = self._owner(query, facts, probes)
            if owner is not None:
                return self._frontend(query, owner[1], [(owner[0], query.family)])
        elif there := facts.ports_at(query.address):
            kinds = (
                state(Sentence.ADDRESS, what=query.address, kind=kind, services=services)
                for kind, services in address_kinds(there, facts)
            )
            names = sorted({owner for _, owner in there})
            ports = [self._source.explain_port(name, query.family) for name in names]
            services = listed(dict.fromkeys(str(name.service) for name in names))
            return self._explanation(query, (*kinds, *_conclusion(services, ports)), ports)
        users = self._source.ports_of_endpoint(query.family, query.address, query.port)
        if users:
            return self._endpoint(query, users)
        outcomes = probes.outcomes(query.address, query.port, query.protocol) if query.port else ()
        unserved = self._source.unserved_at(query.address)
        if unserved and not facts.ports_at(query.address):
            is_proxied = unserved[0].kind == Sentence.PROXY_MODE.name.lower()
            rest = () if is_proxied else (unserved_address(query, facts),)
            return self._explanation(query, (*unserved, *rest), (), outcomes)
        return self._explanation(query, (missing_address(query, facts, probes),), (), outcomes, found=False)

    def _owner(self, query: AddressQuery, facts: Facts, probes: Probes) -> tuple[ServicePortName, str] | None:
        """Return the Service port that owns an address with a port, and the kind of the frontend."""
        key = (query.address, query.protocol, query.port)
        if key in facts.owners:
            return facts.owners[key], facts.kinds[key, facts.owners[key]]
        node_port = facts.owners.get((None, query.protocol, query.port))
        if node_port is None or not probes.is_node_address(query.address):
            return None
        outcomes = probes.outcomes(query.address, query.port, query.protocol)
        accepts = any(outcome.fate != "delivered" or outcome.endpoints for outcome in outcomes)
        return (node_port, "a NodePort") if accepts else None

    def _frontend(self, query: Query, kind: str, owners: list[tuple[ServicePortName, Family]]) -> Explanation:
        name = owners[0][0]
        ports = [self._source.explain_port(each, family) for each, family in owners]
        of_port = state(Sentence.FRONTEND, what=query.text, kind=kind, port=name)
        return self._explanation(query, (of_port, *_conclusion(str(name.service), ports)), ports)

    def _endpoint(self, query: AddressQuery, users: tuple[ServicePortName, ...]) -> Explanation:
        ports = [self._source.explain_port(name, query.family, query.address, query.port) for name in users]
        what = query.text if query.port else query.address
        of_ports = state(Sentence.ENDPOINT, what=what, ports=listed(map(str, users)))
        return self._explanation(query, (of_ports, *_use(ports)), ports)


def _is_port(query: ServiceQuery, name: ServicePortName, numbers: frozenset[str]) -> bool:
    return query.port is None or query.port == name.port or query.port in numbers


def _use(ports: list[ExplainedPort]) -> Iterator[Statement]:
    """Yield whether Service ports use the endpoints that they list; nothing if the reasons are unknown."""
    uses = [use for port in ports for each in port.endpoints for use in each.uses]
    reasons = dict.fromkeys(use.reason for use in uses)
    used = [port.port for port in ports if any(each.is_used for each in port.endpoints)]
    unused = [port.port for port in ports if port.port not in used]
    if len(reasons) <= 1:
        yield from reasons
    elif used and unused:
        yield state(Sentence.USED_BY_SOME, used=listed(used), unused=listed(unused))
    else:
        traffic = {
            is_used: listed(dict.fromkeys(use.traffic for use in uses if use.is_used is is_used))
            for is_used in (True, False)
        }
        yield state(Sentence.USED_FOR_SOME, used=traffic[True] or "nothing", unused=traffic[False])


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
