"""A Service that is too large is left out, and costs nothing else (docs/behaviour/tracking.md#size-limits)."""

from datetime import UTC, datetime

from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Service
from knft.sync.state import ServiceState
from knft.track import size_limits
from tests.support.kube_objects import NODE, endpoint_slice, ingress, port_name, service, service_port, slice_port

WEB = NamespacedName("default", "web")


def _state(*services: Service) -> ServiceState:
    state = ServiceState(Family.IPV4, NODE, datetime(2026, 1, 1, tzinfo=UTC))
    for item in services:
        state.handle_service(None, item)
    return state


def _addresses(count: int) -> tuple[str, ...]:
    return tuple(f"203.0.{number // 250}.{number % 250 + 1}" for number in range(count))


def _service(ports: int, addresses: int) -> Service:
    every = tuple(service_port(number, f"p{number}") for number in range(1, ports + 1))
    return service("web", external_ips=_addresses(addresses), ports=every)


def _slice(name: str, ports: int, endpoints: int) -> EndpointSlice:
    return endpoint_slice(
        name,
        *_addresses(endpoints),
        ports=tuple(slice_port(f"p{number}", 8000 + number) for number in range(1, ports + 1)),
    )


def test_largest_supported_service_is_served() -> None:
    """1 000 endpoints, 100 ports and 10 frontend addresses are promised; 500 endpoints may be in two slices."""
    state = _state(_service(100, 8))
    state.handle_slice(None, _slice("web-1", 100, 1000))
    state.handle_slice(None, _slice("web-2", 100, 500))
    state.drain()
    assert state.too_large() == {}
    assert state.service_port_count() == 100
    assert len(state.endpoints(port_name("p100"))) == 1000


def test_service_with_too_many_frontends_is_not_expanded() -> None:
    """A Service of 1 MB could otherwise have a hundred million frontends."""
    state = _state(_service(1000, 60))
    state.drain()
    assert state.service_port_count() == 0
    assert "1000 ports with 62 addresses have 62000 frontends" in state.too_large()[WEB]


def test_service_with_too_many_endpoints_has_no_rules() -> None:
    """The slices of a Service are counted together; no endpoint is expanded."""
    state = _state(_service(100, 1), service("api", cluster_ip="10.96.0.2"))
    for number in range(3):
        state.handle_slice(None, _slice(f"web-{number}", 100, 700))
    state.drain()
    assert "have 210000 endpoints" in state.too_large()[WEB]
    assert state.plan(port_name("p1")) is None
    assert state.endpoints(port_name("p1")) == ()
    assert state.plan(port_name(service="api")) is not None


def test_service_is_planned_when_it_becomes_too_large_and_small_again() -> None:
    """Its rules are removed, and come back."""
    slices = [_slice(f"web-{number}", 100, 700) for number in range(3)]
    state = _state(_service(100, 1))
    for item in slices[:2]:
        state.handle_slice(None, item)
    state.drain()
    state.handle_slice(None, slices[2])
    assert len(state.drain().service_ports) == 100
    assert state.plan(port_name("p1")) is None

    state.handle_slice(slices[2], None)
    assert len(state.drain().service_ports) == 100
    plan = state.plan(port_name("p1"))
    assert plan is not None
    assert len(plan.endpoints.cluster) == 700


def test_service_without_endpoints_is_planned_when_slices_arrive_that_are_too_large() -> None:
    """It has rules that reject its traffic until then."""
    state = _state(_service(100, 1))
    state.drain()
    for number in range(3):
        state.handle_slice(None, _slice(f"web-{number}", 100, 700))
    assert len(state.drain().service_ports) == 100


def test_deleted_service_is_no_longer_reported() -> None:
    too_large = _service(1000, 60)
    state = _state(too_large)
    state.drain()
    state.handle_service(too_large, None)
    state.drain()
    assert state.too_large() == {}


def test_source_ranges_count_for_each_port() -> None:
    """A wide Service port has one rule for each range."""
    ranges = tuple(f"10.{number // 256}.{number % 256}.0/24" for number in range(1000))
    ports = _service(100, 0).spec.ports
    without_vips = service("web", load_balancer_source_ranges=ranges, ports=ports)
    with_vip = service("web", ingresses=[ingress("203.0.113.1")], load_balancer_source_ranges=ranges, ports=ports)
    assert size_limits.frontends_error(without_vips) == ""
    assert "100 ports with 1000 source ranges need 100000 ranges" in size_limits.frontends_error(with_vip)
