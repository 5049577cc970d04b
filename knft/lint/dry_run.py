"""Services of a server-side dry run, whose new addresses, NodePorts and EndpointSlices are not known yet.

The API server allocates nothing in a dry run. It returns the network address of a ServiceCIDR as the cluster IP, which
no Service ever gets. A NodePort is one above the highest one that the request has allocated, and 32769 if there is none
(pkg/registry/core/service in Kubernetes: ipallocator and portallocator).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from knft.explain.words import listed
from knft.families import Family
from knft.lint.services import has_rules
from knft.model import addresses
from knft.model.described import EndpointSlice, Service
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ServiceCIDR

FIRST_NODE_PORT = 32769
"""The first placeholder: it is above the default range of NodePorts."""


class DryRun(Struct, frozen=True):
    """The changed objects without placeholder NodePorts.

    ``cluster_ips`` are the placeholders of cluster IPs. ``awaiting_slices`` are the new Services for which a controller
    has yet to make EndpointSlices. ``notes`` name the Services with placeholders, and those without slices. A Service
    that had no rules, because it was of type ExternalName, is a new one too.
    """

    changed: tuple[KubeObject, ...]
    cluster_ips: frozenset[str] = frozenset()
    awaiting_slices: frozenset[NamespacedName] = frozenset()
    notes: tuple[str, ...] = ()

    def compared_objects(self) -> Iterator[KubeObject]:
        """Yield what makes packets to placeholders equal on both sides.

        These are the new Services with placeholders, with no other frontends than their cluster IPs, and their
        EndpointSlices.
        """
        services = {
            item.key: item
            for item in self.changed
            if isinstance(item, Service) and _placeholders(item, self.cluster_ips)
        }
        yield from map(_with_cluster_ips_only, services.values())
        for item in self.changed:
            labels = item.metadata.proxy_labels if isinstance(item, EndpointSlice) else None
            if labels and NamespacedName(item.metadata.namespace, labels.service_name or "") in services:
                yield item


def dry_run(changed: Iterable[KubeObject], before: Iterable[KubeObject]) -> DryRun:
    """Return what is not known yet of the changed Services."""
    changed, before = tuple(changed), tuple(before)
    cluster_ips = _network_addresses(before)
    earlier = {item.key: item for item in before if isinstance(item, Service) and has_rules(item)}
    served = {
        NamespacedName(item.metadata.namespace, item.metadata.proxy_labels.service_name)
        for item in (*before, *changed)
        if isinstance(item, EndpointSlice) and item.metadata.proxy_labels.service_name
    }
    new = {item.key: item for item in changed if isinstance(item, Service) and item.key not in earlier}
    awaiting = frozenset(
        key for key, item in new.items() if has_rules(item) and item.spec.selector is not None and key not in served
    )
    services = {item.key: item for item in changed if isinstance(item, Service)}
    ports = {key: _placeholder_ports(item, earlier.get(key), cluster_ips) for key, item in services.items()}
    return DryRun(
        tuple(_without_ports(item, ports) if isinstance(item, Service) else item for item in changed),
        cluster_ips,
        awaiting,
        tuple(
            note
            for key, item in sorted(services.items())
            if (note := _note(item, cluster_ips, ports[key], is_new=key in new, awaits=key in awaiting))
        ),
    )


def _network_addresses(objects: Iterable[KubeObject]) -> frozenset[str]:
    cidrs = [cidr for item in objects if isinstance(item, ServiceCIDR) for cidr in item.spec.cidrs or ()]
    networks = (network for family in Family for network in addresses.networks_of_family(cidrs, family))
    return frozenset(network.partition("/")[0] for network in networks)


def _placeholders(service: Service, cluster_ips: frozenset[str]) -> tuple[str, ...]:
    """Return the cluster IPs of a Service that are placeholders."""
    spec = service.spec
    parsed = (addresses.parse_address(text) for text in spec.cluster_ips or (spec.cluster_ip or "",))
    return tuple(each[1] for each in parsed if each is not None and each[1] in cluster_ips)


def _numbers(service: Service) -> tuple[int, ...]:
    ports = (*(port.node_port for port in service.spec.ports or ()), service.spec.health_check_node_port)
    return tuple(number for number in ports if number)


def _placeholder_ports(service: Service, earlier: Service | None, cluster_ips: frozenset[str]) -> tuple[int, ...]:
    """Return the NodePorts and the health check port that are what the API server's dry run counts up to.

    A number may be requested and still be equal; then it is not checked either. Without a placeholder as the cluster
    IP, lower numbers than the first placeholder count as requested.
    """
    known = _numbers(earlier) if earlier is not None else ()
    lowest = 1 if _placeholders(service, cluster_ips) else FIRST_NODE_PORT
    allocated: list[int] = []
    found: list[int] = []
    for number in _numbers(service):
        if number in known:
            continue
        if number >= lowest and number == max(allocated, default=FIRST_NODE_PORT - 1) + 1:
            found.append(number)
        allocated.append(number)
    return tuple(found)


def _without_ports(service: Service, placeholders: Mapping[NamespacedName, tuple[int, ...]]) -> Service:
    """Return a Service without its placeholder ports."""
    numbers, spec = placeholders.get(service.key), service.spec
    if not numbers:
        return service
    ports = tuple(replace(port, node_port=None) if port.node_port in numbers else port for port in spec.ports or ())
    check = None if spec.health_check_node_port in numbers else spec.health_check_node_port
    return replace(service, spec=replace(spec, ports=ports, health_check_node_port=check))


def _with_cluster_ips_only(service: Service) -> Service:
    ports = tuple(replace(port, node_port=None) for port in service.spec.ports or ())
    nothing: dict[str, Any] = {"external_ips": None, "external_traffic_policy": None, "health_check_node_port": None}
    return replace(service, spec=replace(service.spec, type="ClusterIP", ports=ports, **nothing), status=None)


def _note(service: Service, cluster_ips: frozenset[str], ports: Iterable[int], *, is_new: bool, awaits: bool) -> str:
    """Return what is not known of a changed Service, "" if all is."""
    check = service.spec.health_check_node_port
    kinds = {
        "cluster IP": _placeholders(service, cluster_ips),
        "NodePort": [str(number) for number in ports if number != check],
        "health check port": [str(number) for number in ports if number == check],
    }
    texts = []
    values = [text for found in kinds.values() for text in found]
    if values:
        names = [kind if len(found) == 1 else f"{kind}s" for kind, found in kinds.items() if found]
        are, nouns = ("is", "is a placeholder") if len(values) == 1 else ("are", "are placeholders")
        when = "created" if is_new else "changed"
        texts.append(f"its {listed(names)} {are} not known before it is {when} ({listed(values)} {nouns})")
    if awaits:
        texts.append("a controller makes its EndpointSlices after it is created")
    return f"{'new' if is_new else 'changed'} Service {service.key}: {'; '.join(texts)}" if texts else ""
