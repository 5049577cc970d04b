"""Services that no EndpointSlice serves by mistake (docs/behaviour/tracking.md#unserved-services)."""

from typing import Any

import pytest
from msgspec import structs

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, LoadBalancerIngress, Selector, Service
from knft.track.service_problems import MissingSlices, ServiceProblems
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kube_objects import endpoint_slice, service, service_port, slice_port

WEB = NamespacedName("default", "web")
NO_SLICE = (
    "Service default/web has a selector, but no EndpointSlice has label kubernetes.io/service-name=web; "
    "connections are rejected"
)


class Cluster:
    """Objects, and the problems that are found among them."""

    def __init__(self) -> None:
        self.slices: dict[str, EndpointSlice] = {}
        self.services: dict[str, Service] = {}
        self.problems = ServiceProblems(
            lambda name: [each for each in self.slices.values() if each.metadata.proxy_labels.service_name == name.name]
        )

    def put(self, *items: Service | EndpointSlice) -> None:
        for item in items:
            known: dict[str, Any] = self.services if isinstance(item, Service) else self.slices
            self.problems.record(known.get(item.metadata.name), item)
            known[item.metadata.name] = item

    def delete(self, item: Service | EndpointSlice) -> None:
        known: dict[str, Any] = self.services if isinstance(item, Service) else self.slices
        self.problems.record(known.pop(item.metadata.name), None)

    def due(self, now: float) -> list[str]:
        assert not self.problems.check(now, 1000)
        return [str(problem) for problem in self.problems.take_due(now, 1000) or ()]


def _service(name: str = "web", **spec: Any) -> Service:
    return service(name, **{"selector": Selector(), **spec})


def test_service_without_slices_is_reported_once_after_a_minute() -> None:
    cluster = Cluster()
    cluster.put(_service())
    assert [cluster.due(now) for now in (0, 59.9, 60, 61, 1000)] == [[], [], [NO_SLICE], [], []]
    cluster.put(_service(external_ips=("203.0.113.1",)))
    assert cluster.due(2000) == []


def test_time_begins_again_after_a_slice_existed() -> None:
    cluster, found = Cluster(), endpoint_slice("web-1", "10.244.0.1")
    cluster.put(_service())
    assert cluster.due(0) == []
    cluster.put(found)
    assert cluster.due(59) == []
    cluster.delete(found)
    assert [cluster.due(now) for now in (70, 100, 130)] == [[], [], [NO_SLICE]]
    cluster.put(found)
    assert cluster.due(140) == []
    cluster.delete(found)
    assert [cluster.due(now) for now in (150, 210)] == [[], [NO_SLICE]]


SERVED = {
    "an empty slice: no pod has the labels": (_service(), [endpoint_slice(ports=())]),
    "no selector": (service(), []),
    "ExternalName": (_service(type="ExternalName"), []),
    "no cluster IP": (_service(cluster_ip=None), []),
    "slice with the port": (_service(), [endpoint_slice("web-1", "10.244.0.1")]),
    "one of two slices has the port": (
        _service(),
        [endpoint_slice("web-1", "10.244.0.1"), endpoint_slice("web-2", "10.244.0.2", ports=[slice_port("old")])],
    ),
    "the IPv6 slice has the port": (_service(), [endpoint_slice("web-1", "fd00::1", family="IPv6")]),
    "unnamed port": (
        _service(ports=(service_port(name=""),)), [endpoint_slice("web-1", "10.244.0.1", ports=[slice_port("")])]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SERVED)
def test_other_services_are_not_reported(case: str) -> None:
    cluster, (found, slices) = Cluster(), SERVED[case]
    cluster.put(found, *slices)
    assert [cluster.due(now) for now in (0, 60)] == [[], []]


MISSING_PORTS = {
    "another name": (
        _service(),
        [slice_port("web"), slice_port("admin")],
        "'http' (TCP)", "only 'admin' (TCP), 'web' (TCP)",
    ),
    "another protocol": (_service(), [slice_port(protocol="UDP")], "'http' (TCP)", "only 'http' (UDP)"),
    "no port: the pods lack the named port": (_service(), [], "'http' (TCP)", "no port"),
    "port without a name": (
        _service(ports=(service_port(name=""),)), [slice_port()], "without a name (TCP)", "only 'http' (TCP)"
    ),
    "slice port without name or number": (
        _service(), [slice_port(None), slice_port(port=None)], "'http' (TCP)", "no port"
    ),
    "Service without a selector": (service(), [slice_port("web")], "'http' (TCP)", "only 'web' (TCP)"),
    "many ports": (
        _service(ports=tuple(service_port(name=f"p{number}") for number in range(5))),
        [slice_port(f"q{number}") for number in range(4)],
        "'p0' (TCP), 'p1' (TCP), 'p2' (TCP) and 2 more", "only 'q0' (TCP), 'q1' (TCP), 'q2' (TCP) and 1 more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING_PORTS)
def test_port_that_no_slice_has_is_reported(case: str) -> None:
    cluster, (found, ports, missing, have) = Cluster(), MISSING_PORTS[case]
    text = f"Service default/web has port {missing}, but its EndpointSlices have {have}"
    which = "these ports" if "more" in missing else "this port"
    cluster.put(found, endpoint_slice("web-1", "10.244.0.1", ports=ports))
    assert [cluster.due(now) for now in (0, 60, 120)] == [
        [],
        [f"{text}; connections to {which} are rejected"],
        [],
    ]


def test_deleted_service_is_forgotten() -> None:
    cluster, found = Cluster(), _service()
    cluster.put(found)
    assert cluster.due(0) == []
    cluster.delete(found)
    assert cluster.due(60) == []
    cluster.put(found)
    assert [cluster.due(now) for now in (61, 121)] == [[], [NO_SLICE]]


def test_slice_that_moves_to_another_service_leaves_the_first() -> None:
    cluster = Cluster()
    cluster.put(_service(), _service("api"), endpoint_slice("web-1", "10.244.0.1"))
    assert cluster.due(0) == []
    cluster.put(endpoint_slice("web-1", "10.244.0.1", service="api"))
    assert [cluster.due(now) for now in (30, 90)] == [[], [NO_SLICE]]


def test_instructions_of_one_change_do_not_depend_on_the_number_of_services() -> None:
    def change(count: int) -> int:
        cluster = Cluster()
        problems = ServiceProblems(lambda _name: ())
        cluster.problems = problems
        cluster.put(*(_service(f"s{number}") for number in range(count)))
        cluster.due(0)

        def work() -> None:
            cluster.put(_service(external_ips=("203.0.113.1",)))
            cluster.due(30)

        return count_bytecode_steps(work)

    change(1)  # Fills caches.
    assert change(1000) == change(10)


def test_checks_are_split_into_batches() -> None:
    """So another thread that records a change waits shortly."""
    cluster = Cluster()
    cluster.put(*(_service(f"s{number}") for number in range(5)))
    assert [cluster.problems.check(0, 2) for _ in range(3)] == [True, True, False]
    assert [len(cluster.problems.take_due(60, 2) or ()) for _ in range(4)] == [2, 2, 1, 0]


def test_problems_that_ended_are_no_reason_to_take_no_more() -> None:
    cluster = Cluster()
    cluster.put(_service("a"), _service("b"), _service("c"))
    assert cluster.due(0) == []
    cluster.put(endpoint_slice("a-1", "10.244.0.1", service="a"))
    taken = [cluster.problems.take_due(60, 1) for _ in range(4)]
    assert taken == [
        [],
        [MissingSlices(NamespacedName("default", "b"))],
        [MissingSlices(NamespacedName("default", "c"))],
        None,
    ]


def test_addresses_of_the_node_and_of_pods_are_reported_once() -> None:
    """One for each Service; an ingress of mode Proxy is no frontend."""
    uses = {"192.0.2.11": "the node's address", "10.244.1.5": "in the pod CIDR 10.244.1.0/24"}
    problems = ServiceProblems(lambda _: (), lambda address: uses.get(address, ""))
    problems.record(None, service("web", external_ips=("203.0.113.1", "192.0.2.11", "10.244.1.5")))
    problems.record(None, service("pod", type="LoadBalancer", ingresses=[LoadBalancerIngress("10.244.1.5")]))
    problems.record(
        None, service("proxy", type="LoadBalancer", ingresses=[LoadBalancerIngress("192.0.2.11", ip_mode="Proxy")])
    )
    assert not problems.check(0, 1000)
    pod, web = sorted(str(problem) for problem in problems.take_due(60, 1000) or ())
    begin, end = (
        "has the external IP or load balancer IP",
        "connections to the Service's ports at this address go to its",
    )
    assert pod == f"Service default/pod {begin} 10.244.1.5, which is in the pod CIDR 10.244.1.0/24; {end} endpoints"
    assert web == f"Service default/web {begin} 192.0.2.11, which is the node's address; {end} endpoints"
    assert problems.take_due(120, 1000) is None


def test_only_the_first_addresses_of_a_service_are_checked() -> None:
    asked: list[str] = []

    def conflict_of(address: str) -> str:
        asked.append(address)
        return ""

    problems = ServiceProblems(lambda _: (), conflict_of)
    problems.record(None, service("web", external_ips=tuple(f"203.0.{third}.1" for third in range(250))))
    # The API server and manifests may leave out the status.
    problems.record(None, structs.replace(service("none", type="LoadBalancer"), status=None))
    problems.check(0, 1000)
    assert len(asked) == 100
