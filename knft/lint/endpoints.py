"""Checks of Service ports and their endpoints."""

from collections.abc import Iterable, Iterator
from typing import Any

from knft.explain.sentences import Sentence
from knft.explain.service_ports import rejection
from knft.explain.words import listed
from knft.lint.checks import Check
from knft.lint.cluster_ips import cluster_ip_conflicts
from knft.lint.manifests import FamilyCluster, PortOfService
from knft.lint.report import Hit, hit
from knft.model.addresses import canonical_text
from knft.model.described import EndpointSlice, Service
from knft.model.names import NamespacedName
from knft.track.size_limits import endpoints_error
from knft.track.slices import PortKey, expand_slice, ports_of

_CHECKS = {
    Sentence.PORT_NOT_IN_SLICES.kind: Check.PORT_NAME_WITHOUT_SLICE,
    Sentence.SLICES_WITHOUT_PORTS.kind: Check.SLICES_WITHOUT_PORTS,
    Sentence.NO_ENDPOINTS.kind: Check.SERVICE_WITHOUT_ENDPOINTS,
    Sentence.NONE_READY.kind: Check.NO_READY_ENDPOINT,
    Sentence.TOO_MANY_ENDPOINTS.kind: Check.TOO_MANY_ENDPOINTS,
}
_REMEDIES = {
    Check.PORT_NAME_WITHOUT_SLICE: (
        "use the same name and protocol in the Service and in its EndpointSlices; if a controller writes them, make "
        "targetPort name a port that the pods have"
    ),
    Check.SLICES_WITHOUT_PORTS: "give the EndpointSlices a port with the name of the Service port and a number",
}
"""What to do about the ports of EndpointSlices that people write."""
_CONTROLLER = "endpointslice-controller.k8s.io"
_OF_SERVICE = frozenset({Check.SLICES_WITHOUT_PORTS, Check.SERVICE_WITHOUT_ENDPOINTS, Check.TOO_MANY_ENDPOINTS})
"""Checks about all ports of a Service, which findings do not list."""


class EndpointChecks:
    """Checks of one family; ``slices`` are the EndpointSlices of each Service in all families, also those not used."""

    def __init__(
        self,
        cluster: FamilyCluster,
        services: dict[NamespacedName, Service],
        slices: dict[NamespacedName, list[EndpointSlice]],
    ) -> None:
        """Take the objects."""
        self._cluster, self._services, self._slices = cluster, services, slices
        self._family = cluster.family.value

    def hits(self) -> Iterator[Hit]:
        """Yield what is wrong with the endpoints of each Service port."""
        for port in (port for port in self._cluster.ports if port.plan.frontends):
            if port.name.service in self._cluster.manifests.awaiting_slices:
                continue
            if port.name in self._cluster.rejecting:
                yield self._rejection(port)
            else:
                yield from self._readiness(port)
                yield from self._hints(port)
        yield from self._affinity()
        for service in dict.fromkeys(port.name.service for port in self._cluster.ports):
            yield from self._addresses(service)

    def _addresses(self, service: NamespacedName) -> Iterator[Hit]:
        """Yield the endpoints that are cluster IPs, and those of which EndpointSlices say different things."""
        slices = self._cluster.slices(service)
        texts = {each.addresses[0] for item in slices for each in item.endpoints or () if each.addresses}
        found = sorted(self._cluster.cluster_ips.intersection(map(canonical_text, texts)))
        if found:
            values: dict[str, Any] = {"endpoints": listed(found), "remedy": self._remedy(found)}
            yield hit(Check.ENDPOINT_IS_CLUSTER_IP, service, family=self._family, **values)
        if len(slices) > 1 and not endpoints_error(slices):
            twice = sorted(self._differing(slices))
            if twice:
                yield hit(Check.ENDPOINT_IN_SEVERAL_SLICES, service, family=self._family, endpoints=listed(twice))

    def _remedy(self, cluster_ips: Iterable[str]) -> str:
        """Return what to do about endpoints that are cluster IPs: either may be wrong."""
        conflicts = cluster_ip_conflicts(self._cluster)
        misplaced = [address for address in cluster_ips if address in conflicts]
        if not misplaced:
            return "list the pods of the other Service, or use a Service of type ExternalName"
        return f"give Services other cluster IPs than {listed(misplaced)}: nodes or pods have these addresses"

    def _differing(self, slices: Iterable[EndpointSlice]) -> Iterator[str]:
        """Yield each address and port that slices describe differently."""
        said: dict[tuple[PortKey, str], set[tuple[object, ...]]] = {}
        for item in slices:
            nodes = {
                canonical_text(each.addresses[0]): each.node_name for each in item.endpoints or () if each.addresses
            }
            for port, endpoints in expand_slice(item, "").items():
                for each in endpoints:
                    said.setdefault((port, each.key), set()).add((each.traits, nodes[each.address]))
        yield from {key for (_, key), texts in said.items() if len(texts) > 1}

    def _rejection(self, port: PortOfService) -> Hit:
        service, family = port.name.service, self._family
        slices = self._cluster.slices(service)
        statement = rejection(port.name, port.endpoints, slices, self._cluster.family)
        if statement.kind == Sentence.NO_SLICES.kind:
            return self._without_slices(service)
        check, values = _CHECKS[statement.kind], dict[str, Any]()
        if check is Check.TOO_MANY_ENDPOINTS:
            values["error"] = endpoints_error(slices).removesuffix("; split the Service")
        if check is Check.PORT_NAME_WITHOUT_SLICE:
            values["wanted"] = PortKey(port.name.port, port.name.protocol)
            values["found"] = listed(map(str, sorted(ports_of(slices))))
        if check in _REMEDIES:
            values["remedy"] = self._target_port_remedy(port, check) or _REMEDIES[check]
        return hit(check, service, port="" if check in _OF_SERVICE else port.text, family=family, **values)

    def _target_port_remedy(self, port: PortOfService, check: Check) -> str:
        """Return what to correct if the EndpointSlice controller found no pod with a port of targetPort's name."""
        service = self._services[port.name.service]
        slices = self._cluster.slices(port.name.service)
        managers = {item.metadata.labels.managed_by for item in slices if item.metadata.labels is not None}
        if service.spec.selector is None and _CONTROLLER not in managers:
            return ""
        key = (port.name.port, port.name.protocol)
        ports = [each for each in service.spec.ports or () if check in _OF_SERVICE or (each.name, each.protocol) == key]
        names = [repr(name) for name in dict.fromkeys(each.target_name for each in ports) if name]
        return f"correct targetPort {listed(names)}, or the name of the pods' container port" if names else ""

    def _without_slices(self, service: NamespacedName) -> Hit:
        others = self._slices.get(service, [])
        types = {each.address_type for each in others}
        if types and self._family not in types:
            return hit(Check.FAMILY_WITHOUT_SLICES, service, family=self._family, found=listed(sorted(types)))
        stray = ", except those with label service.kubernetes.io/headless" if others else ""
        return hit(Check.SERVICE_WITHOUT_SLICES, service, family=self._family, name=service.name, stray=stray)

    def _readiness(self, port: PortOfService) -> Iterator[Hit]:
        if not any(endpoint.ready for endpoint in port.endpoints):
            yield hit(Check.ONLY_TERMINATING_ENDPOINTS, port.name.service, port=port.text, family=self._family)

    def _hints(self, port: PortOfService) -> Iterator[Hit]:
        ready = [endpoint.traits for endpoint in port.endpoints if endpoint.ready]
        if not port.port.uses_cluster_endpoints:
            return
        without = [each for each in ready if not (each.zone_hints or each.node_hints)]
        if without and len(without) < len(ready):
            values: dict[str, Any] = {"without": len(without), "total": len(ready)}
            yield hit(Check.HINTS_IGNORED, port.name.service, port=port.text, family=self._family, **values)

    def _affinity(self) -> Iterator[Hit]:
        for port in self._cluster.ports:
            spec = self._services[port.name.service].spec
            is_hinted = any(each.traits.zone_hints or each.traits.node_hints for each in port.endpoints)
            if port.port.affinity_seconds and port.port.uses_cluster_endpoints:
                if spec.traffic_distribution:
                    reason = f"trafficDistribution {spec.traffic_distribution}"
                    yield hit(Check.AFFINITY_WITH_HINTS, port.name.service, reason=reason)
                elif is_hinted:
                    yield hit(Check.AFFINITY_WITH_HINTS, port.name.service, reason="a topology hint")


def local_endpoint_texts(slices: Iterable[EndpointSlice], known: frozenset[str]) -> dict[str, list[str]]:
    """Return the endpoints that are on no known node, by what is wrong with their nodeName."""
    found: dict[str, list[str]] = {}
    for endpoint in (each for item in slices for each in item.endpoints or () if each.addresses):
        if not endpoint.node_name:
            found.setdefault("is missing", []).append(endpoint.addresses[0])
        elif known and endpoint.node_name not in known:
            problem = f"is {endpoint.node_name!r}, which is no Node of the manifests"
            found.setdefault(problem, []).append(endpoint.addresses[0])
    return found
