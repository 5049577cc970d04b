"""Clusters as values, from which knft's objects and the peers' rules are made.

Endpoints are numbers, and an unchanged Service is a function of its number, so that the benchmark adds little to the
memory that it measures.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address

from msgspec import Struct, structs

NAMESPACE = "bench"
PORT, TARGET_PORT, PORT_NAME = 80, 8080, "http"
CLUSTER_CIDR, SERVICE_CIDR = "10.128.0.0/9", "10.96.0.0/16"
NODE_IP = "192.0.2.11"
AFFINITY_SECONDS = 10800
_FIRST_ENDPOINT = int(IPv4Address("10.128.0.1"))
_FIRST_CLUSTER_IP = int(IPv4Address("10.96.1.0"))
_FIRST_VIP = int(IPv4Address("198.18.0.1"))
_FIRST_EXTERNAL_IP = int(IPv4Address("100.64.0.1"))
# More than the number of Services of any cluster.
_ADDRESS_STRIDE = 1 << 15
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


class Port(Struct, frozen=True):
    """A TCP port of a Service, and the ``target`` port of its endpoints."""

    name: str = PORT_NAME
    number: int = PORT
    target: int = TARGET_PORT


def numbered_ports(count: int) -> tuple[Port, ...]:
    """Return different ports."""
    return tuple(Port(f"{PORT_NAME}-{index}", PORT + index, TARGET_PORT + index) for index in range(count))


class ServiceSpec(Struct, frozen=True):
    """A Service; with ``ranges``, it has load balancer IPs with that many source ranges.

    ``load_balancing`` is the value of the annotation knft.dev/load-balancing, if it has that.
    Of a dual-stack Service, the addresses here are those of IPv4.
    """

    number: int
    endpoints: tuple[int, ...]
    affinity_seconds: int = 0
    ranges: int = 0
    ports: tuple[Port, ...] = (Port(),)
    external_ip_count: int = 0
    vip_count: int = 1
    is_dual_stack: bool = False
    load_balancing: str = ""

    @property
    def name(self) -> str:
        return f"service-{self.number}"

    @property
    def cluster_ip(self) -> str:
        return str(IPv4Address(_FIRST_CLUSTER_IP + self.number))

    @property
    def port(self) -> Port:
        """The only port."""
        (port,) = self.ports
        return port

    @property
    def external_ips(self) -> tuple[str, ...]:
        return self._addresses(_FIRST_EXTERNAL_IP, self.external_ip_count)

    @property
    def vips(self) -> tuple[str, ...]:
        return self._addresses(_FIRST_VIP, self.vip_count if self.ranges else 0)

    @property
    def source_ranges(self) -> tuple[str, ...]:
        return tuple(f"172.{16 + index}.{self.number % 256}.0/24" for index in range(self.ranges))

    def split_ports(self) -> Iterator["ServiceSpec"]:
        """Yield a Service with one port for each port."""
        return (structs.replace(self, ports=(port,)) for port in self.ports)

    def _addresses(self, first: int, count: int) -> tuple[str, ...]:
        return tuple(str(IPv4Address(first + self.number + index * _ADDRESS_STRIDE)) for index in range(count))


class Shape(Struct, frozen=True):
    """A cluster before any change.

    ``first_endpoints`` is the size of its first Service, if it differs. ``wide`` is this Service without its endpoints,
    if it has many frontends.
    """

    name: str
    services: int
    endpoints: int
    first_endpoints: int = 0
    affinity_seconds: int = 0
    ranges: int = 0
    wide: ServiceSpec | None = None

    @property
    def is_plain(self) -> bool:
        """Whether proxies are compared with this cluster."""
        return not (self.first_endpoints or self.affinity_seconds or self.ranges)

    @property
    def is_dual_stack(self) -> bool:
        """Whether the cluster has a dual-stack Service."""
        return self.wide is not None and self.wide.is_dual_stack


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
        if number == 0 and self.shape.wide is not None:
            return structs.replace(self.shape.wide, endpoints=endpoints)
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
