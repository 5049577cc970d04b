"""Explains a query from values: the objects of a cluster with the rules made from them, or the kernel's rules alone."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Protocol as Interface

from msgspec import Struct
from msgspec.structs import replace

from knft.explain.cluster import Cluster
from knft.explain.explanation import ExplainedPort, Explanation
from knft.explain.facts import Facts, facts_of_objects, facts_of_rules, frontend_text
from knft.explain.kernel_ports import KernelView, explain_kernel_port, kernel_ports_with_endpoint
from knft.explain.missing import address_kinds, missing_address, missing_node_port, missing_service, unserved_address
from knft.explain.outcomes import ClientOutcome, Probes
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.service_ports import PortExplainer, View
from knft.explain.unserved import proxied_at, services_at, unserved_reason
from knft.explain.words import listed, number_text
from knft.families import FAMILY_OF_VERSION, Family, IpVersion
from knft.interpret.ranges import Ranges
from knft.interpret.rules import RuleSet
from knft.model.names import NamespacedName, ServicePortName

Rules = Mapping[IpVersion, RuleSet]
_COMMENT_BYTES = 128
_NO_SERVICE = frozenset({Sentence.NO_SERVICE.name.lower(), Sentence.KERNEL_NO_SERVICE.name.lower()})


class NodeRules(Struct, frozen=True):
    """knft's rules on a node, by IP version, and the addresses of the node as ranges and as texts.

    ``nodeport_addresses`` accept NodePorts; the first of each family is the node's own, if that accepts them.
    """

    rules: Rules
    node_addresses: Mapping[IpVersion, Ranges]
    node_ips: Mapping[Family, str]
    nodeport_addresses: Mapping[Family, str]

    def probes(self) -> dict[Family, Probes]:
        """Return the probes of each family."""
        found = {FAMILY_OF_VERSION[version]: rules for version, rules in self.rules.items()}
        return {
            family: Probes(rules, self.node_addresses[family.version], self.node_ips.get(family, ""))
            for family, rules in found.items()
        }


class Source(Interface):
    """Where frontends and endpoints come from."""

    name: str
    node: str
    zone: str
    warnings: tuple[str, ...]
    facts: dict[Family, Facts]
    probes: dict[Family, Probes]

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port; list only endpoints with ``address`` and ``port``, if these are given."""

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports that have an endpoint, whether it is used or not."""

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return why a Service has no rules; that it does not exist, with similar names; or nothing."""

    def unserved_at(self, address: str) -> tuple[Statement, ...]:
        """Return which Service without rules has an address, and why it has none; or nothing."""


class ObjectSource:
    """The objects of a cluster, with the rules made from them."""

    def __init__(self, name: str, cluster: Cluster, node_rules: NodeRules, warnings: tuple[str, ...] = ()) -> None:
        """``name`` describes the objects; ``warnings`` are problems of the node's settings."""
        self.name, self._cluster, self.warnings = name, cluster, warnings
        views = cluster.families.values()
        self.node = next((each.node.name for each in views), "")
        self.zone = next((each.node.zone for each in views), "")
        self.probes = node_rules.probes()
        self.facts = {family: facts_of_objects(cluster, family) for family in cluster.families}
        self._explainer = PortExplainer(
            cluster,
            {
                family: View(
                    family,
                    cluster.families[family],
                    self.facts[family],
                    probes,
                    node_rules.nodeport_addresses.get(family, ""),
                )
                for family, probes in self.probes.items()
            },
        )

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port from objects."""
        return self._explainer.explain(name, family, address, port)

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports with this endpoint in their EndpointSlices."""
        objects = self._cluster.families[family]
        found = (
            name
            for name in objects.ports
            for each in objects.endpoints.get(name, ())
            if each.address == address and port in (0, each.port)
        )
        return tuple(sorted(set(found)))

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return why a Service has no rules, from the object."""
        found = self._cluster.services.get(service)
        if found is None:
            return missing_service(service, self._cluster.services)
        reason = unserved_reason(found)
        return () if reason is None else (reason,)

    def unserved_at(self, address: str) -> tuple[Statement, ...]:
        """Return which Service without rules has an address, from the objects."""
        proxied = proxied_at(address, self._cluster.services.values())
        if proxied is not None:
            return (proxied,)
        for service in services_at(address, self._cluster.services.values()):
            reason = unserved_reason(service)
            if reason is not None:
                return (state(Sentence.OF_UNSERVED, address=address, service=service.key), reason)
        return ()


class KernelSource:
    """knft's rules in the kernel alone."""

    node, zone = "", ""
    warnings: tuple[str, ...] = ()

    def __init__(self, name: str, node_rules: NodeRules) -> None:
        """``name`` describes the rules."""
        self.name = name
        self.probes = node_rules.probes()
        self.facts = {family: facts_of_rules(probes.rules) for family, probes in self.probes.items()}
        self._views = {
            family: KernelView(self.facts[family], probes, node_rules.nodeport_addresses.get(family, ""))
            for family, probes in self.probes.items()
        }

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port from rules."""
        return explain_kernel_port(self._views[family], name, address, port)

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports whose rules send connections to this endpoint."""
        return kernel_ports_with_endpoint(self._views[family], address, port)

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return that the rules have no such Service; they do not tell why."""
        existing = frozenset[NamespacedName]().union(*(facts.services() for facts in self.facts.values()))
        return () if service in existing else missing_service(service, existing, Sentence.KERNEL_NO_SERVICE)

    def unserved_at(self, address: str) -> tuple[Statement, ...]:  # noqa: ARG002 - of the protocol
        """Return nothing: rules have no Services without rules."""
        return ()


def explain(query: Query, source: Source, kernel: NodeRules | None = None) -> Explanation:
    """Explain a query; ``kernel`` are rules to compare with those of the source, if any."""
    found = _Explainer(source).explain(query)
    return found if kernel is None else replace(found, kernel=_agreement(query, found, source, kernel))


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


def _agreement(query: Query, found: Explanation, source: Source, kernel: NodeRules) -> tuple[Statement, ...]:
    """Return whether the kernel's rules treat the packets of an explanation as the source's rules do."""
    others = kernel.probes()
    families = dict.fromkeys(Family(port.family) for port in found.ports) or dict.fromkeys(source.probes)
    if isinstance(query, AddressQuery):
        families = {query.family: None}
    missing = [state(Sentence.KERNEL_NO_TABLE, family=family.value) for family in families if family not in others]
    differences = [
        each
        for port in found.ports
        if (family := Family(port.family)) in others
        for each in _differences(port, source.probes[family], others[family])
    ]
    if isinstance(query, AddressQuery) and query.port and not found.ports and query.family in others:
        probes = source.probes[query.family]
        if not probes.agree(others[query.family], query.address, query.port, query.protocol):
            differences.append(state(Sentence.KERNEL_DIFFERENT, frontend=query.text))
    return tuple(dict.fromkeys((*missing, *differences))) or (state(Sentence.KERNEL_EQUAL),)


def _differences(port: ExplainedPort, probes: Probes, other: Probes) -> Iterator[Statement]:
    owned = [frontend for frontend in port.frontends if frontend.is_owned]
    for each in owned:
        if each.at and not probes.agree(other, each.at, each.port, port.protocol):
            yield state(Sentence.KERNEL_DIFFERENT, frontend=each.what)
    known = {frontend.what for frontend in owned}
    for key, name in sorted(facts_of_rules(other.rules).owners.items(), key=lambda item: frontend_text(item[0])):
        if _is_named(port, name) and frontend_text(key) not in known:
            yield state(Sentence.KERNEL_EXTRA, frontend=frontend_text(key), port=port.port)


def _is_named(port: ExplainedPort, name: ServicePortName) -> bool:
    """Tell whether a comment, which the kernel limits to 128 bytes, names a Service port."""
    return (str(name), name.protocol) == (port.port[:_COMMENT_BYTES], port.protocol)
