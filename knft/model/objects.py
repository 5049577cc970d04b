"""The Kubernetes objects that knft reads, with only the fields that knft uses.

Field names are the API's in snake case. msgspec skips all other fields without creating objects for them, so that a
huge annotation costs no memory. Every value that reaches the trackers conforms to these types and to
``source.validate``. Decoded objects are never part of a reference cycle, so they are exempt from garbage collection
(``gc=False``).

The structs are frozen, so ``__post_init__`` sets fields with ``force_setattr``: an assignment would raise.
"""

import sys
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from knft.model.annotations import Annotations
from knft.model.names import NamespacedName
from knft.protocols import Protocol

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z"
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z"
_PORT_NAME = r"^([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)?\Z"
_ENDS = "with a letter or a digit first and last"
# Messages to the user use a description as "<value> is not <description>".
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=_NAME,
        description=f"a name: lower case letters, digits, '-' and '.', {_ENDS}",
    ),
]
Namespace = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=_LABEL,
        description=f"the name of a namespace: lower case letters, digits and '-', {_ENDS}",
    ),
]
PortName = Annotated[
    str,
    Meta(max_length=63, pattern=_PORT_NAME, description=f"the name of a port: letters, digits and '-', {_ENDS}"),
]
PortNumber = Annotated[int, Meta(ge=1, le=65535)]
OptionalPortNumber = Annotated[int, Meta(ge=0, le=65535)]
TrafficPolicy = Literal["Cluster", "Local"]


class Labels(Struct, frozen=True, gc=False):
    """The labels that a Service proxy evaluates (docs/behaviour/tracking.md#selection)."""

    service_name: str | None = field(name="kubernetes.io/service-name", default=None)
    headless: str | None = field(name="service.kubernetes.io/headless", default=None)
    proxy_name: str | None = field(name="service.kubernetes.io/service-proxy-name", default=None)
    zone: str | None = field(name="topology.kubernetes.io/zone", default=None)


class ObjectMeta(Struct, frozen=True, rename="camel", gc=False):
    """``metadata``; ``namespace`` defaults to ``default``, as in kubectl."""

    name: Name
    namespace: Namespace = "default"
    labels: Labels | None = None
    annotations: Annotations | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        """Share equal names of namespaces: 50 000 objects have few different ones."""
        force_setattr(self, "namespace", sys.intern(self.namespace))

    @property
    def proxy_labels(self) -> Labels:
        """The labels; empty ones if the object has none."""
        return self.labels or Labels()


class ServicePortSpec(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``Service.spec.ports``."""

    port: PortNumber
    name: PortName = ""
    protocol: Protocol = "TCP"
    node_port: OptionalPortNumber | None = None

    def __post_init__(self) -> None:
        """Share equal names."""
        force_setattr(self, "name", sys.intern(self.name))


class ClientIPConfig(Struct, frozen=True, rename="camel", gc=False):
    """``timeoutSeconds`` of ClientIP affinity, in seconds."""

    timeout_seconds: Annotated[int, Meta(ge=1, le=86400)] | None = None


class SessionAffinityConfig(Struct, frozen=True, rename="camel", gc=False):
    """The configuration of session affinity."""

    client_ip: ClientIPConfig | None = field(name="clientIP", default=None)


class Selector(Struct, frozen=True, gc=False):
    """A selector of pods; knft reads only whether a Service has one."""


@lru_cache(maxsize=1 << 5)
def _shared_families(families: tuple[Literal["IPv4", "IPv6"], ...]) -> tuple[Literal["IPv4", "IPv6"], ...]:
    return families


class ServiceSpec(Struct, frozen=True, rename="camel", gc=False):
    """``Service.spec``."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] = "ClusterIP"
    cluster_ip: str | None = field(name="clusterIP", default=None)
    cluster_ips: tuple[str, ...] | None = field(name="clusterIPs", default=None)
    ip_families: tuple[Literal["IPv4", "IPv6"], ...] | None = None
    ports: tuple[ServicePortSpec, ...] | None = None
    selector: Selector | None = None
    external_ips: tuple[str, ...] | None = field(name="externalIPs", default=None)
    session_affinity: Literal["None", "ClientIP"] | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    load_balancer_source_ranges: tuple[str, ...] | None = None
    external_traffic_policy: TrafficPolicy | None = None
    internal_traffic_policy: TrafficPolicy | None = None
    health_check_node_port: OptionalPortNumber | None = None

    def __post_init__(self) -> None:
        """Share equal families, and the cluster IP with the first one of the list."""
        if self.ip_families is not None:
            force_setattr(self, "ip_families", _shared_families(self.ip_families))
        if self.cluster_ips and self.cluster_ips[0] == self.cluster_ip:
            force_setattr(self, "cluster_ip", self.cluster_ips[0])


class LoadBalancerIngress(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``Service.status.loadBalancer.ingress``."""

    ip: str | None = None
    ip_mode: Literal["VIP", "Proxy"] | None = None


class LoadBalancerStatus(Struct, frozen=True, rename="camel", gc=False):
    """``Service.status.loadBalancer``."""

    ingress: tuple[LoadBalancerIngress, ...] | None = None


class ServiceStatus(Struct, frozen=True, rename="camel", gc=False):
    """``Service.status``."""

    load_balancer: LoadBalancerStatus | None = None


class Service(Struct, frozen=True, rename="camel", gc=False):
    """A ``v1`` Service."""

    metadata: ObjectMeta
    spec: ServiceSpec
    status: ServiceStatus | None = None

    @property
    def key(self) -> NamespacedName:
        """The Service's name."""
        return NamespacedName(self.metadata.namespace, self.metadata.name)


class EndpointPort(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``EndpointSlice.ports``.

    The API's default for the name is "", and a missing number means all ports; knft skips entries that lack one of
    them, as kube-proxy does (docs/behaviour/tracking.md#endpoint-slices).
    """

    name: PortName | None = None
    port: OptionalPortNumber | None = None
    protocol: Protocol | None = None

    def __post_init__(self) -> None:
        """Share equal names."""
        if self.name is not None:
            force_setattr(self, "name", sys.intern(self.name))


class EndpointConditions(Struct, frozen=True, rename="camel", gc=False):
    """Conditions; by default an endpoint is ready, serving and not terminating."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class NamedHint(Struct, frozen=True, rename="camel", gc=False):
    """The name of a zone or node that should use an endpoint."""

    name: str


class EndpointHints(Struct, frozen=True, rename="camel", gc=False):
    """The zones and nodes that should use an endpoint."""

    for_zones: tuple[NamedHint, ...] | None = None
    for_nodes: tuple[NamedHint, ...] | None = None


@lru_cache(maxsize=1 << 5)
def _shared_conditions(conditions: EndpointConditions) -> EndpointConditions:
    return conditions


class SliceEndpoint(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``EndpointSlice.endpoints``; knft uses only the first address, as kube-proxy does."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    hints: EndpointHints | None = None

    def __post_init__(self) -> None:
        """Share equal conditions and names of nodes: 250 000 endpoints have few different ones, and 24 MiB of equal."""
        if self.conditions is not None:
            force_setattr(self, "conditions", _shared_conditions(self.conditions))
        if self.node_name is not None:
            force_setattr(self, "node_name", sys.intern(self.node_name))


class EndpointSlice(Struct, frozen=True, rename="camel", gc=False):
    """A ``discovery.k8s.io/v1`` EndpointSlice."""

    metadata: ObjectMeta
    address_type: Literal["IPv4", "IPv6", "FQDN"]
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None

    @property
    def key(self) -> NamespacedName:
        """The slice's own name."""
        return NamespacedName(self.metadata.namespace, self.metadata.name)


class NodeAddress(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``Node.status.addresses``."""

    type: str
    address: str


class NodeStatus(Struct, frozen=True, rename="camel", gc=False):
    """``Node.status``."""

    addresses: tuple[NodeAddress, ...] | None = None


class Taint(Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``Node.spec.taints``."""

    key: str


class NodeSpec(Struct, frozen=True, rename="camel", gc=False):
    """``Node.spec``."""

    pod_cidrs: tuple[str, ...] | None = field(name="podCIDRs", default=None)
    taints: tuple[Taint, ...] | None = None


class Node(Struct, frozen=True, rename="camel", gc=False):
    """A ``v1`` Node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def key(self) -> NamespacedName:
        """The node's name; nodes have no namespace."""
        return NamespacedName("", self.metadata.name)


class ServiceCIDRSpec(Struct, frozen=True, rename="camel", gc=False):
    """``ServiceCIDR.spec``."""

    cidrs: tuple[str, ...] | None = None


class ServiceCIDR(Struct, frozen=True, rename="camel", gc=False):
    """A ``networking.k8s.io/v1`` ServiceCIDR."""

    metadata: ObjectMeta
    spec: ServiceCIDRSpec

    @property
    def key(self) -> NamespacedName:
        """The ServiceCIDR's name; it has no namespace."""
        return NamespacedName("", self.metadata.name)


KubeObject = Service | EndpointSlice | Node | ServiceCIDR


class ObjectChange(Struct, frozen=True):
    """One added (``previous`` is None), deleted (``current`` is None) or changed object.

    ``resource_version`` is that of the event that told of the change, "" if a list or a manifest did.
    """

    previous: KubeObject | None
    current: KubeObject | None
    resource_version: str = ""
