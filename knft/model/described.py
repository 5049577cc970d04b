"""EndpointSlices and Services with the fields that only people read.

These are the pods and zones of endpoints, for ``knft explain``, and the fields of Services without effect on rules, for
``knft lint``. The daemon does not decode them: the names of 250 000 pods take 20 MiB. A wrong value in these fields is
ignored, as in the daemon.
"""

from typing import Any

from msgspec import field

from knft.model import annotations, objects


class DescribedEndpoint(objects.SliceEndpoint, frozen=True, rename="camel", gc=False):
    """An endpoint with its pod and its zone."""

    target_ref: Any = None
    zone: Any = None

    @property
    def pod(self) -> str:
        """The name of the endpoint's pod, "" if it is unknown."""
        ref = self.target_ref
        return _text(ref.get("name")) if isinstance(ref, dict) and ref.get("kind", "Pod") == "Pod" else ""

    @property
    def zone_name(self) -> str:
        """The endpoint's zone, "" if it is unknown."""
        return _text(self.zone)


class Labels(objects.Labels, frozen=True, gc=False):
    """The labels of an EndpointSlice, and which controller writes it."""

    managed_by: Any = field(name="endpointslice.kubernetes.io/managed-by", default=None)


class SliceMeta(objects.ObjectMeta, frozen=True, rename="camel", gc=False):
    """``metadata`` of an EndpointSlice."""

    labels: Labels | None = None


class EndpointSlice(objects.EndpointSlice, frozen=True, rename="camel", gc=False):
    """An EndpointSlice whose endpoints have pods and zones; messages name it by its kind."""

    metadata: SliceMeta
    endpoints: tuple[DescribedEndpoint, ...] | None = None


class Annotations(annotations.Annotations, frozen=True, gc=False):
    """The annotations of a Service, with those that other components read, or once read."""

    topology_mode: Any = field(name="service.kubernetes.io/topology-mode", default=None)
    topology_aware_hints: Any = field(name="service.kubernetes.io/topology-aware-hints", default=None)
    tolerate_unready: Any = field(name="service.alpha.kubernetes.io/tolerate-unready-endpoints", default=None)


class ObjectMeta(objects.ObjectMeta, frozen=True, rename="camel", gc=False):
    """``metadata`` of a Service."""

    annotations: Annotations | None = None


class ServicePortSpec(objects.ServicePortSpec, frozen=True, rename="camel", gc=False):
    """A port of a Service with the pods' port, which the EndpointSlice controller reads."""

    target_port: Any = None

    @property
    def target_name(self) -> str:
        """The name of the pods' container port, "" if ``targetPort`` is no name."""
        return _text(self.target_port)


class ServiceSpec(objects.ServiceSpec, frozen=True, rename="camel", gc=False):
    """``Service.spec`` with fields that knft does not use."""

    ports: tuple[ServicePortSpec, ...] | None = None
    external_name: Any = None
    load_balancer_ip: Any = field(name="loadBalancerIP", default=None)
    topology_keys: Any = None
    traffic_distribution: Any = None


class Service(objects.Service, frozen=True, rename="camel", gc=False):
    """A Service with fields that knft does not use; messages name it by its kind."""

    metadata: ObjectMeta
    spec: ServiceSpec


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
