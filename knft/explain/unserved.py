"""Explains Services without rules: headless ones, those of other proxies, too large ones."""

from collections.abc import Iterable, Iterator

from knft.explain.cluster import Cluster
from knft.explain.query import AddressQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import number_text
from knft.families import Family
from knft.model.addresses import canonical_text
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, LoadBalancerIngress, Service
from knft.protocols import Protocol
from knft.track.expand import expand_service
from knft.track.size_limits import endpoints_error, frontends_error


def unserved_reason(service: Service) -> Statement | None:
    """Return why knft has no rules for a Service, None if it may have some."""
    name, spec = service.key, service.spec
    proxy = service.metadata.proxy_labels.proxy_name
    if proxy is not None:
        return state(Sentence.OTHER_PROXY, service=name, proxy=proxy)
    if spec.type == "ExternalName":
        return state(Sentence.EXTERNAL_NAME, service=name)
    if spec.cluster_ip == "None":
        return state(Sentence.HEADLESS, service=name)
    if not spec.ports:
        return state(Sentence.NO_PORTS, service=name)
    error = frontends_error(service)
    if error:
        return state(Sentence.TOO_MANY_FRONTENDS, service=name, error=error)
    return None if _has_cluster_ip(service, Family) else state(Sentence.NO_CLUSTER_IP, service=name)


class UnservedServices:
    """Finds addresses, NodePorts and endpoints of Services for which knft has no rules."""

    def __init__(self, cluster: Cluster, no_service: Sentence) -> None:
        """Take the objects; ``no_service`` says that there is no such Service."""
        self._cluster, self._no_service = cluster, no_service
        self._services = sorted(cluster.services.values(), key=lambda each: each.key)

    def at_address(self, address: str) -> tuple[Statement, ...]:
        """Return which Service has an address as cluster, external or load balancer IP, and why it has no rules."""
        for service in self._services:
            if any(_is_at(each, address) and each.ip_mode == "Proxy" for each in ingresses(service)):
                return (state(Sentence.PROXY_MODE, address=address, service=service.key),)
        for service, reason in self._unserved():
            if address in map(canonical_text, _addresses(service)):
                return (state(Sentence.OF_UNSERVED, address=address, service=service.key), reason)
        return ()

    def at_node_port(self, port: int, protocol: Protocol) -> tuple[Statement, ...]:
        """Return which Service has a NodePort or health check port that knft has no rules for."""
        number = number_text(port, protocol)
        for service, reason in self._unserved():
            if any((each.node_port, each.protocol) == (port, protocol) for each in service.spec.ports or ()):
                of_service = state(Sentence.NODE_PORT_OF_UNSERVED, port=number, service=service.key)
                return (of_service, reason, state(Sentence.UNSERVED_NODE_PORT))
        checked = (
            name.service
            for objects in self._cluster.families.values()
            for name, each in objects.ports.items()
            if each.health_check_node_port == port and protocol == "TCP"
        )
        service_name = min(checked, default=None)
        return () if service_name is None else (state(Sentence.HEALTH_CHECK_PORT, port=number, service=service_name),)

    def of_endpoint(self, query: AddressQuery) -> tuple[Statement, ...]:
        """Return which Service has an endpoint in its EndpointSlices, and why no Service port has it."""
        for service, slices in sorted(self._cluster.slices.items()):
            of_family = [item for item in slices if item.address_type == query.family.value]
            if any(has_endpoint(item, query) for item in of_family):
                of_service = state(Sentence.ENDPOINT_OF_UNSERVED, what=query.what, service=service)
                return (of_service, self._endpoint_reason(service, query.family, of_family))
        return ()

    def _endpoint_reason(self, name: NamespacedName, family: Family, slices: Iterable[EndpointSlice]) -> Statement:
        service = self._cluster.services.get(name)
        if service is None:
            return state(self._no_service, service=name)
        reason = unserved_reason(service)
        if reason is not None:
            return reason
        if not _has_cluster_ip(service, (family,)):
            return state(Sentence.NO_CLUSTER_IP_IN_FAMILY, service=name, family=family.value)
        error = endpoints_error(slices)
        if error:
            return state(Sentence.TOO_MANY_ENDPOINTS, service=name, family=family.value, error=error)
        return state(Sentence.NO_PORT_OF_SLICE, service=name)

    def _unserved(self) -> Iterator[tuple[Service, Statement]]:
        for service in self._services:
            reason = unserved_reason(service)
            if reason is not None:
                yield service, reason


def has_endpoint(item: EndpointSlice, query: AddressQuery) -> bool:
    """Tell whether a slice has an endpoint; like the proxies, knft uses only the first address of each."""
    if query.port and query.port not in {port.port for port in item.ports or ()}:
        return False
    return any(canonical_text(each.addresses[0]) == query.address for each in item.endpoints or () if each.addresses)


def _is_at(ingress: LoadBalancerIngress, address: str) -> bool:
    return ingress.ip is not None and canonical_text(ingress.ip) == address


def _addresses(service: Service) -> Iterator[str]:
    spec = service.spec
    if spec.cluster_ip:
        yield spec.cluster_ip
    yield from spec.cluster_ips or ()
    yield from spec.external_ips or ()
    yield from (each.ip for each in ingresses(service) if each.ip)


def ingresses(service: Service) -> tuple[LoadBalancerIngress, ...]:
    """Return the load balancer addresses in the status of a Service."""
    status = service.status.load_balancer if service.status is not None else None
    return (status.ingress or ()) if status is not None else ()


def _has_cluster_ip(service: Service, families: Iterable[Family]) -> bool:
    return any(expand_service(service, family) for family in families)
