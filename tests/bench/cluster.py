"""Clusters as values, from which knft's objects and the peers' rules are made.

Endpoints are numbers, and an unchanged Service is a function of its number, so that the benchmark adds little to the
memory that it measures.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address

from msgspec import Struct

NAMESPACE = "bench"
PORT, TARGET_PORT, PORT_NAME = 80, 8080, "http"
CLUSTER_CIDR, SERVICE_CIDR = "10.128.0.0/9", "10.96.0.0/16"
NODE_IP = "192.0.2.11"
AFFINITY_SECONDS = 10800
_FIRST_ENDPOINT = int(IPv4Address("10.128.0.1"))
_FIRST_CLUSTER_IP = int(IPv4Address("10.96.1.0"))
_FIRST_VIP = int(IPv4Address("198.18.0.1"))
_ENDPOINTS_PER_LOCAL_ONE = 20


def endpoint_address(number: int) -> str:
    """Return the address of an endpoint."""
    return str(IPv4Address(_FIRST_ENDPOINT + number))


def endpoint_number(address: str) -> int:
    """Return the number of the endpoint at an address."""
    return int(IPv4Address(address)) - _FIRST_ENDPOINT


def is_local(number: int) -> bool:
    """Tell whether an endpoint is on this node, as a twentieth of them is."""
    return number % _ENDPOINTS_PER_LOCAL_ONE == 0


class ServiceSpec(Struct, frozen=True):
    """A Service with one TCP port; with ``ranges``, it has a load balancer IP with that many source ranges."""

    number: int
    endpoints: tuple[int, ...]
    affinity_seconds: int = 0
    ranges: int = 0

    @property
    def name(self) -> str:
        return f"service-{self.number}"

    @property
    def cluster_ip(self) -> str:
        return str(IPv4Address(_FIRST_CLUSTER_IP + self.number))

    @property
    def vip(self) -> str:
        return str(IPv4Address(_FIRST_VIP + self.number)) if self.ranges else ""

    @property
    def source_ranges(self) -> tuple[str, ...]:
        return tuple(f"172.{16 + index}.{self.number % 256}.0/24" for index in range(self.ranges))


class Shape(Struct, frozen=True):
    """A cluster before any change; ``first_endpoints`` is the size of its first Service, if it differs."""

    name: str
    services: int
    endpoints: int
    first_endpoints: int = 0
    affinity_seconds: int = 0
    ranges: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether proxies are compared with this cluster."""
        return not (self.first_endpoints or self.affinity_seconds or self.ranges)


class Cluster:
    """The current Services. The first and the last one can have endpoints that answer."""

    def __init__(self, shape: Shape, reachable_endpoints: tuple[int, ...] = ()) -> None:
        self.shape = shape
        self.size = shape.services
        self._reachable_endpoints = reachable_endpoints
        self._changed: dict[int, ServiceSpec] = {}
        self._next_endpoint = shape.services * shape.endpoints + shape.first_endpoints

    def __iter__(self) -> Iterator[ServiceSpec]:
        return map(self.service, range(self.size))

    def service(self, number: int) -> ServiceSpec:
        """Return the current Service with this number."""
        return self._changed.get(number) or self.build_service(number, self._first_endpoints(number))

    def build_service(self, number: int, endpoints: tuple[int, ...]) -> ServiceSpec:
        """Return a Service of this cluster's kind without adding it to the cluster."""
        return ServiceSpec(number, endpoints, self.shape.affinity_seconds, self.shape.ranges)

    def put(self, service: ServiceSpec) -> None:
        """Add or replace a Service."""
        self._changed[service.number] = service
        self.size = max(self.size, service.number + 1)

    def new_endpoints(self, count: int) -> tuple[int, ...]:
        """Return ``count`` endpoints that no Service has had."""
        first = self._next_endpoint
        self._next_endpoint += count
        return tuple(range(first, first + count))

    def _first_endpoints(self, number: int) -> tuple[int, ...]:
        if self._reachable_endpoints and number in (0, self.shape.services - 1):
            return self._reachable_endpoints
        each, first = self.shape.endpoints, self.shape.first_endpoints or self.shape.endpoints
        start = 0 if number == 0 else first + (number - 1) * each
        return tuple(range(start, start + (first if number == 0 else each)))
