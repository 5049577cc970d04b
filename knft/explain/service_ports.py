"""Explains one Service port in one family, from objects and from the outcomes that the rules have."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from knft.decide.frontends import claimed_frontends
from knft.decide.loopback import LOOPBACK_ADDRESSES, loopback_nodeport
from knft.decide.plan import plan_service_port
from knft.explain.cluster import Cluster, EndpointDetails, EndpointDetailsIndex, FamilyObjects
from knft.explain.endpoints import Traffic, UseReasons, endpoint_state
from knft.explain.explanation import EndpointUse, ExplainedEndpoint, ExplainedFrontend, ExplainedPort
from knft.explain.frontend_index import KIND_TEXTS, FrontendIndex, frontend_text
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed
from knft.families import Family
from knft.model.addresses import collapse
from knft.model.annotations import RANDOM
from knft.model.endpoint import Endpoint, endpoint_key
from knft.model.names import ServicePortName
from knft.model.objects import EndpointSlice
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.track.size_limits import endpoints_error
from knft.track.slices import PortKey, ports_of


class FamilyView(Struct, frozen=True):
    """One family: its objects, their frontends, and the rules rendered from the objects.

    ``nodeport_address`` is an address that accepts NodePorts, "" if none does. ``localhost_nodeports`` tells whether
    knft serves NodePorts on the loopback address, too.
    """

    family: Family
    objects: FamilyObjects
    index: FrontendIndex
    probes: Probes
    nodeport_address: str
    localhost_nodeports: bool = False


class PortExplainer:
    """Explains the Service ports of a cluster."""

    def __init__(self, cluster: Cluster, views: Mapping[Family, FamilyView]) -> None:
        """Take the objects and, for each family, what follows from them."""
        self._cluster, self._views = cluster, views

    def explain(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain one Service port; list only endpoints with ``address`` and ``port``, if these are given."""
        view = self._views[family]
        service_port = view.objects.ports[name]
        endpoints = view.objects.endpoints.get(name, ())
        claimed = claimed_frontends(service_port)
        plan = _plan(name, view)
        owned = plan.frontends
        explained = self._endpoints(plan, endpoints, claimed, view)
        problems = tuple(self._problems(plan, endpoints, view))
        frontends = tuple(_frontend(each, name, view) for each in claimed)
        shown = tuple(
            item
            for item, each in zip(explained, endpoints, strict=True)
            if not address or (each.address == address and port in (0, each.port))
        )
        used = sum(item.is_used for item in explained)
        served = state(Sentence.SERVED, used=used, total=len(explained), family=family.value, port=name)
        return ExplainedPort(
            port=str(name),
            protocol=name.protocol,
            family=family.value,
            conclusion=problems[0] if plan.internal is TrafficAction.REJECT or not owned else served,
            problems=problems,
            frontends=frontends,
            endpoints=shown,
            other_endpoints=len(explained) - len(shown),
            internal_traffic_policy="Local" if service_port.internal_policy_local else "Cluster",
            external_traffic_policy=_external_policy(plan),
            load_balancing=service_port.load_balancing if service_port.hashes_clients else RANDOM,
            affinity_seconds=service_port.affinity_seconds or None,
            # Not ``plan.allowed_sources``, which may have the load balancer IPs too, for the node's own packets.
            source_ranges=collapse(service_port.load_balancer_source_ranges) if service_port.load_balancer_vips else (),
            notes=tuple(_notes(plan, frontends, view)),
        )

    def port_on_loopback(self, query: AddressQuery) -> ServicePortName | None:
        """Return the Service port whose NodePort knft serves at a loopback address, or None."""
        view = self._views[query.family]
        name = view.index.owners.get((None, query.protocol, query.port))
        if not view.localhost_nodeports or query.address != LOOPBACK_ADDRESSES[query.family] or name is None:
            return None
        return name if loopback_nodeport(_plan(name, view)) is not None else None

    def _endpoints(
        self, plan: ServicePlan, endpoints: tuple[Endpoint, ...], claimed: tuple[Frontend, ...], view: FamilyView
    ) -> tuple[ExplainedEndpoint, ...]:
        def lost_to(traffic: Traffic) -> str:
            frontends = (each for each in claimed if traffic.is_external is (each.kind is not FrontendKind.CLUSTER_IP))
            owners = dict.fromkeys(view.index.owners[each.key] for each in frontends)
            return "" if plan.name in owners else listed(map(str, owners))

        knows_pods = view.probes.knows_pods
        reasons = UseReasons(plan, endpoints, view.objects.node, lost_to, knows_pods=knows_pods)
        index = EndpointDetailsIndex(self._cluster, plan.name.service, view.family)
        return tuple(_endpoint(each, index.details(each), reasons.uses(each)) for each in endpoints)

    def _problems(self, plan: ServicePlan, endpoints: tuple[Endpoint, ...], view: FamilyView) -> Iterator[Statement]:
        """Yield what keeps connections from endpoints, the worst problem first."""
        name, owned_kinds = plan.name, {each.kind for each in plan.frontends}
        values = {"port": name, "family": view.family.value}
        if plan.internal is TrafficAction.REJECT and owned_kinds:
            slices = self._cluster.slices.get(name.service, ())
            yield rejection(name, endpoints, slices, view.family)
        if plan.internal is TrafficAction.DROP and FrontendKind.CLUSTER_IP in owned_kinds:
            yield state(Sentence.INTERNAL_NONE_LOCAL, **values)
        if plan.external is TrafficAction.DROP and owned_kinds - {FrontendKind.CLUSTER_IP}:
            yield state(Sentence.EXTERNAL_NONE_LOCAL, **values)
        yield from _lost_frontends(name, claimed_frontends(plan.port), view.index)
        if FrontendKind.NODE_PORT in owned_kinds and not view.nodeport_address:
            yield state(Sentence.NO_NODE_PORT_ADDRESS, **values)


def _plan(name: ServicePortName, view: FamilyView) -> ServicePlan:
    """Return the plan of a Service port, with the frontends that it owns."""
    service_port = view.objects.ports[name]
    owned = tuple(each for each in claimed_frontends(service_port) if view.index.owners.get(each.key) == name)
    return plan_service_port(name, service_port, view.objects.endpoints.get(name, ()), owned, view.objects.node)


def rejection(
    name: ServicePortName, endpoints: Iterable[Endpoint], slices: Iterable[EndpointSlice], family: Family
) -> Statement:
    """Return why a Service port has no usable endpoint; ``slices`` are those of its Service in both families."""
    service = name.service
    slices = [item for item in slices if item.address_type == family.value]
    error = endpoints_error(slices)
    values = {"service": service, "port": name, "family": family.value}
    if error:
        return state(Sentence.TOO_MANY_ENDPOINTS, **values, error=error)
    if any(endpoints):
        return state(Sentence.NONE_READY, **values)
    if not slices:
        return state(Sentence.NO_SLICES, **values)
    if not any(item.endpoints for item in slices):
        return state(Sentence.NO_ENDPOINTS, **values)
    found = sorted(ports_of(slices))
    if not found:
        return state(Sentence.SLICES_WITHOUT_PORTS, **values)
    wanted = PortKey(name.port, name.protocol)
    return state(Sentence.PORT_NOT_IN_SLICES, **values, wanted=wanted, found=listed(map(str, found)))


def _lost_frontends(name: ServicePortName, claimed: Iterable[Frontend], index: FrontendIndex) -> Iterator[Statement]:
    """Yield the frontends that other Service ports own, for each owner."""
    lost: dict[ServicePortName, list[str]] = {}
    for each in claimed:
        lost.setdefault(index.owners[each.key], []).append(frontend_text(each.key))
    for owner in sorted(lost.keys() - {name}):
        yield state(Sentence.LOST_FRONTENDS, port=name, frontends=listed(lost[owner]), owner=owner)


def _endpoint(endpoint: Endpoint, details: EndpointDetails, uses: tuple[EndpointUse, ...]) -> ExplainedEndpoint:
    return ExplainedEndpoint(
        endpoint=endpoint.key,
        pod=details.pod,
        node=details.node,
        zone=details.zone,
        state=endpoint_state(endpoint),
        is_used=any(use.is_used for use in uses),
        uses=uses,
    )


def _external_policy(plan: ServicePlan) -> str:
    if not plan.port.is_externally_accessible:
        return ""
    return "Local" if plan.port.external_policy_local else "Cluster"


def _frontend(frontend: Frontend, name: ServicePortName, view: FamilyView) -> ExplainedFrontend:
    owner = view.index.owners[frontend.key]
    at = frontend.address if frontend.address is not None else view.nodeport_address
    is_owned = owner == name
    outcomes = view.probes.outcomes(at, frontend.port, frontend.protocol) if is_owned and at else ()
    return ExplainedFrontend(
        what=frontend_text(frontend.key),
        kind=KIND_TEXTS[frontend.kind],
        port=frontend.port,
        is_owned=is_owned,
        claims=tuple(_claims(frontend, name, owner, view)),
        at=at,
        outcomes=outcomes,
    )


def _claims(frontend: Frontend, name: ServicePortName, owner: ServicePortName, view: FamilyView) -> Iterator[Statement]:
    """Yield which other Service ports claim a frontend."""
    if owner == name:
        others = [each for each in view.index.claims[frontend.key] if each != name]
        if others:
            yield state(Sentence.ALSO_CLAIMED, names=listed(map(str, others)))
        return
    yield loss_reason(frontend, name, view.index, view.objects)


def loss_reason(frontend: Frontend, name: ServicePortName, index: FrontendIndex, objects: FamilyObjects) -> Statement:
    """Return why another Service port owns a frontend that a Service port claims."""
    owner, ports = index.owners[frontend.key], objects.ports
    kind = index.kinds[frontend.key, owner]
    if kind != KIND_TEXTS[frontend.kind]:
        return state(Sentence.LOST_BY_KIND, owner=owner, kind=kind)
    if _age(ports[owner].creation_timestamp) != _age(ports[name].creation_timestamp):
        return state(Sentence.LOST_BY_AGE, owner=owner)
    return state(Sentence.LOST_BY_NAME, owner=owner)


def _age(created: str) -> tuple[bool, str]:
    return (not created, created)


def _notes(plan: ServicePlan, frontends: tuple[ExplainedFrontend, ...], view: FamilyView) -> Iterator[Statement]:
    probed = [each for each in frontends if each.outcomes]
    if any(view.probes.has_hairpin(each.at, each.port, plan.name.protocol) for each in probed):
        yield state(Sentence.HAIRPIN)
    external = [each for each in probed if each.kind != KIND_TEXTS[FrontendKind.CLUSTER_IP]]
    if plan.port.external_policy_local and any(_sends_pods_away(each, plan) for each in external):
        yield state(Sentence.PODS_OF_THIS_NODE)
    if plan.port.resets_connections:
        yield state(Sentence.RESETS_CONNECTIONS)
    served = loopback_nodeport(plan) if view.localhost_nodeports else None
    if served is not None:
        number, endpoints = served
        at = endpoint_key(LOOPBACK_ADDRESSES[view.family], number)
        yield state(Sentence.SERVED_ON_LOOPBACK, at=at, used=len(endpoints))
    yield from view.probes.notes()


def _sends_pods_away(frontend: ExplainedFrontend, plan: ServicePlan) -> bool:
    """Tell whether pods reach endpoints on other nodes with their own address as the source."""
    local = {endpoint.key for endpoint in plan.endpoints.local}
    kept = (each for each in frontend.outcomes if each.client == "pod" and each.source == "kept")
    return any(not local.issuperset(each.endpoints) for each in kept)
