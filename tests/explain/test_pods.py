"""Pods and zones, which the running knft requests from the API server for an explanation."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from knft.errors import ControlError
from knft.explain.explanation import ExplainedEndpoint, Explanation
from knft.explain.pods import MAX_SERVICES, with_pods
from knft.model.endpoint_pod import EndpointPod, EndpointState
from knft.model.names import NamespacedName
from tests.support.explain_sources import explained, of_objects, served

FOUND = explained("web", of_objects(*served("web", "10.96.0.12")))
(ENDPOINT,) = FOUND.ports[0].endpoints
ADDRESS = ENDPOINT.endpoint.rpartition(":")[0]


def _pod(
    name: str, address: str = ADDRESS, *, node: str = ENDPOINT.node, zone: str = "", state: EndpointState = "ready"
) -> EndpointPod:
    return EndpointPod(address, node, name, zone or f"zone-of-{name}", state)


def _endpoint(found: Explanation) -> ExplainedEndpoint:
    ((endpoint,),) = [port.endpoints for port in found.ports]
    return endpoint


def _with(*pods: EndpointPod, state: EndpointState = "ready") -> tuple[str, str]:
    (port,) = FOUND.ports
    found = _endpoint(
        with_pods(
            replace(FOUND, ports=(replace(port, endpoints=(replace(ENDPOINT, state=state),)),)),
            lambda _: pods,
        )
    )
    return found.pod, found.zone


def test_pod_of_the_address_and_the_node_is_shown() -> None:
    assert ENDPOINT.state == "ready"
    assert _with(_pod("web-0"), _pod("web-1", "10.244.99.1"), _pod("web-2", node="node-99")) == (
        "web-0",
        "zone-of-web-0",
    )
    assert _with(_pod("web-2", node="node-99")) == ("", ENDPOINT.zone)


def test_state_tells_which_of_two_pods_with_one_address_it_is() -> None:
    """An address may belong to a new pod while a slice still has the old one."""
    old, new = _pod("old", state="terminating"), _pod("new", state="not ready")
    assert _with(old, new, state="terminating") == ("old", "zone-of-old")
    assert _with(old, new, state="not ready") == ("new", "zone-of-new")
    assert _with(old, new, state="ready") == ("", ENDPOINT.zone)
    assert _with(new, state="ready") == ("new", "zone-of-new")


def test_several_pods_with_one_address_and_state_have_a_zone_in_common() -> None:
    """As have two pods of a Service that use the node's network, with other ports."""
    assert _with(_pod("one", zone="zone-b"), _pod("two", zone="zone-b")) == ("", "zone-b")
    assert _with(_pod("one"), _pod("two")) == ("", ENDPOINT.zone)


def test_ipv6_endpoint_is_found() -> None:
    (port,) = FOUND.ports
    endpoint = replace(ENDPOINT, endpoint="[fd00:10:244::5]:8080")
    found = with_pods(
        replace(FOUND, ports=(replace(port, endpoints=(endpoint,)),)), lambda _: [_pod("web-0", "fd00:10:244::5")]
    )
    assert _endpoint(found).pod == "web-0"


def test_pod_in_several_slices_is_one() -> None:
    """The controller may move an endpoint to another slice, and each port has a slice of its own."""
    assert _with(_pod("web-0"), _pod("web-0")) == ("web-0", "zone-of-web-0")


def test_endpoint_without_a_zone_keeps_the_zone_of_its_node() -> None:
    found = with_pods(FOUND, lambda _: [EndpointPod(ADDRESS, ENDPOINT.node, "web-0", "", "ready")])
    assert (_endpoint(found).pod, _endpoint(found).zone) == ("web-0", ENDPOINT.zone)


def test_each_service_is_read_once_and_not_too_many_are() -> None:
    names = [f"s{number}" for number in range(MAX_SERVICES + 2)]
    ports = [explained(name, of_objects(*served(name, "10.96.0.12"))).ports[0] for name in names]
    found = Explanation("all", True, (), "", "", "", ("one warning",), (*ports, *ports), ())  # noqa: FBT003
    read: list[NamespacedName] = []

    def read_pods(service: NamespacedName) -> Iterable[EndpointPod]:
        read.append(service)
        return [_pod(service.name)]

    result = with_pods(found, read_pods)
    assert read == [NamespacedName("default", name) for name in names[:MAX_SERVICES]]
    pods = [port.endpoints[0].pod for port in result.ports]
    assert pods == [*names[:MAX_SERVICES], "", ""] * 2
    missing = "pods, and zones of other nodes, are missing for default/s8 and 1 more"
    assert result.warnings == ("one warning", f"{missing}: they are requested for 8 Services at most")


def test_explanation_stays_if_pods_cannot_be_read() -> None:
    def refuse(_: NamespacedName) -> Iterable[EndpointPod]:
        msg = "it did not answer"
        raise ControlError(msg)

    found = with_pods(FOUND, refuse)
    assert found.ports == FOUND.ports
    warning = "pods, and zones of other nodes, are missing for default/web: it did not answer"
    assert found.warnings == (*FOUND.warnings, warning)


def test_pods_that_were_read_before_an_error_are_shown() -> None:
    other = explained("api", of_objects(*served("api", "10.96.0.13"))).ports

    def read_pods(service: NamespacedName) -> Iterable[EndpointPod]:
        if service.name == "api":
            msg = "it did not answer"
            raise ControlError(msg)
        return [_pod("web-0")]

    found = with_pods(replace(FOUND, ports=(*FOUND.ports, *other)), read_pods)
    assert [port.endpoints[0].pod for port in found.ports] == ["web-0", ""]
    assert found.warnings[-1] == "pods, and zones of other nodes, are missing for default/api: it did not answer"


def test_nothing_is_read_without_endpoints() -> None:
    unknown = explained("nobody", of_objects(*served("web", "10.96.0.12")))
    assert with_pods(unknown, lambda _: pytest.fail("a request without a need")) == unknown
