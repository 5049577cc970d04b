"""Changes of Services between two syncs (docs/behaviour/tracking.md#services)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import ClientIPConfig, Labels, Service, SessionAffinityConfig
from knft.model.service_port import ServicePort
from knft.track.services import ServiceChangeTracker, ServicePortMap
from tests.support.kube_objects import ingress, parametrize_cases, port_name, service, service_port

WEB = NamespacedName("default", "web")
PORT = ServicePort("10.96.0.1", 80, "TCP")
OTHER_PORT = ServicePort("10.96.0.2", 80, "TCP")
NO_CHANGES = frozenset[ServicePortName]()


class TrackedServices:
    """The ServiceChangeTracker and the ServicePortMap of IPv4."""

    def __init__(self, *merged: Service) -> None:
        """Merge ``merged``, as an earlier sync did."""
        self.tracker = ServiceChangeTracker(Family.IPV4)
        self.ports = ServicePortMap()
        for item in merged:
            self.tracker.record_service(None, item)
        self.ports.update(self.tracker)

    def update(self, *changes: tuple[Service | None, Service | None]) -> list[bool]:
        """Pass (previous, current) pairs to the tracker; return whether any Service was pending after each."""
        return [self.tracker.record_service(previous, current) for previous, current in changes]

    def sync(self) -> frozenset[ServicePortName]:
        """Merge the pending changes, and return the names of the changed Service ports."""
        before = dict(self.ports)
        former = self.ports.update(self.tracker)
        assert former == {name: before.get(name) for name in former}
        return frozenset(former)


def _names(*names: str) -> frozenset[NamespacedName]:
    return frozenset(NamespacedName("default", name) for name in names)


def test_new_service_is_pending_until_merge() -> None:
    tracked = TrackedServices()
    assert tracked.update((None, service())) == [True]
    assert tracked.tracker.pending == 1
    assert dict(tracked.ports) == {}
    assert frozenset({port_name()}) == tracked.sync()
    assert {port_name(): PORT} == dict(tracked.ports)
    assert tracked.tracker.pending == 0
    assert tracked.sync() == NO_CHANGES


def test_update_without_objects_is_not_counted() -> None:
    tracked = TrackedServices()
    assert tracked.update((None, None)) == [False]
    assert tracked.tracker.changes_total == 0


def test_every_update_with_an_object_is_counted() -> None:
    tracked = TrackedServices()
    tracked.update((None, service()), (service(), service()), (service(), None))
    assert tracked.tracker.changes_total == 3


def test_add_and_delete_before_a_sync_cancel_out() -> None:
    tracked = TrackedServices()
    assert tracked.update((None, service()), (service(), None)) == [True, False]
    assert tracked.sync() == NO_CHANGES


def test_delete_and_add_before_a_sync_cancel_out() -> None:
    tracked = TrackedServices(service())
    assert tracked.update((service(), None), (None, service())) == [True, False]
    assert tracked.sync() == NO_CHANGES
    assert {port_name(): PORT} == dict(tracked.ports)


def test_edit_and_revert_before_a_sync_cancel_out() -> None:
    tracked = TrackedServices(service())
    edited = service(cluster_ip="10.96.0.2")
    assert tracked.update((service(), edited), (edited, service())) == [True, False]


def test_first_pending_update_provides_the_previous_state() -> None:
    """Only the first update starts from the state that the last sync merged."""
    ports = [(service_port(number, name),) for number, name in ((80, "a"), (81, "b"), (82, "c"))]
    old, between, new = (service(ports=entry) for entry in ports)
    tracked = TrackedServices(old)
    assert tracked.update((old, between), (between, new)) == [True, True]
    update = tracked.sync()
    assert frozenset({port_name("a"), port_name("c")}) == update
    assert {port_name("c"): ServicePort("10.96.0.1", 82, "TCP")} == dict(tracked.ports)


def test_update_returns_whether_any_service_is_pending() -> None:
    """An update without a change returns True while another Service is pending; with endpoints it returns False."""
    web, dns = service(), service("dns", cluster_ip="10.96.0.2")
    tracked = TrackedServices(web)
    assert tracked.update((web, web), (None, dns), (web, web)) == [False, True, True]
    assert frozenset({port_name(service="dns")}) == tracked.sync()
    assert tracked.update((web, web)) == [False]


class IgnoredCase(NamedTuple):
    """Fields of a Service that has no Service ports in IPv4."""

    fields: dict[str, Any]


IGNORED = {
    "headless": IgnoredCase({"cluster_ip": "None"}),
    "without a cluster IP": IgnoredCase({"cluster_ip": ""}),
    "ExternalName with a cluster IP": IgnoredCase({"type": "ExternalName"}),
    "of the other family": IgnoredCase(
        {"cluster_ip": "fd00::1", "cluster_ips": ("fd00::1",), "ip_families": ("IPv6",)}
    ),
}


@parametrize_cases(IGNORED)
def test_ignored_service_is_never_pending(case: IgnoredCase) -> None:
    tracked = TrackedServices()
    item = service(**case.fields)
    assert tracked.update((None, item), (item, None)) == [False, False]
    assert tracked.sync() == NO_CHANGES


def test_service_without_ports_is_pending() -> None:
    tracked = TrackedServices()
    assert tracked.update((None, service(ports=()))) == [True]
    assert tracked.sync() == NO_CHANGES


LOAD_BALANCER: dict[str, Any] = {"type": "LoadBalancer", "external_traffic_policy": "Local"}
EDITS: dict[str, dict[str, Any]] = {
    "cluster IP": {"cluster_ip": "10.96.0.2"},
    "port": {"ports": (service_port(81),)},
    "port name": {"ports": (service_port(80, "other"),)},
    "protocol": {"ports": (service_port(80, "http", "UDP"),)},
    "additional port": {"ports": (service_port(), service_port(81, "other"))},
    "node port": {"ports": (service_port(node_port=30080),)},
    "VIP": {"ingresses": (ingress("192.0.2.1"),)},
    "affinity": {"session_affinity": "ClientIP"},
    "affinity timeout": {
        "session_affinity": "ClientIP",
        "session_affinity_config": SessionAffinityConfig(ClientIPConfig(5)),
    },
    "external IPs": {"external_ips": ("203.0.113.9",)},
    "source ranges": {"load_balancer_source_ranges": ("10.0.0.0/8",)},
    "external policy": LOAD_BALANCER,
    "internal policy": {"internal_traffic_policy": "Local"},
    "becomes headless": {"cluster_ip": "None"},
    "becomes ExternalName": {"type": "ExternalName"},
}


@pytest.mark.parametrize("fields", list(EDITS.values()), ids=list(EDITS))
def test_edit_of_used_field_is_pending(fields: dict[str, Any]) -> None:
    assert TrackedServices(service()).update((service(), service(**fields))) == [True]


def test_edit_of_affinity_timeout_is_pending() -> None:
    before, after = (
        service(session_affinity="ClientIP", session_affinity_config=SessionAffinityConfig(ClientIPConfig(seconds)))
        for seconds in (5, 6)
    )
    assert TrackedServices(before).update((before, after)) == [True]


def test_edit_of_health_check_port_is_pending() -> None:
    before, after = (service(**LOAD_BALANCER, health_check_node_port=port) for port in (30001, 30002))
    assert TrackedServices(before).update((before, after)) == [True]


UNUSED: dict[str, dict[str, Any]] = {
    "labels": {"labels": Labels(zone="zone-a")},
    "ingress of mode Proxy": {"ingresses": (ingress("192.0.2.1", "Proxy"),)},
    "ingress by hostname": {"ingresses": (ingress(None),)},
    "external IP of the other family": {"external_ips": ("fd00:e::9",)},
    "source range of the other family": {"load_balancer_source_ranges": ("fd00::/8",)},
    "external policy without external access": {"external_traffic_policy": "Local"},
    "health check port without policy Local": {"health_check_node_port": 30001},
    "another spelling of the cluster IP": {"cluster_ip": "010.096.000.001"},
    "explicit affinity None": {"session_affinity": "None"},
    "explicit policy Cluster": {"internal_traffic_policy": "Cluster"},
}


@pytest.mark.parametrize("fields", list(UNUSED.values()), ids=list(UNUSED))
def test_edit_of_unused_field_is_not_pending(fields: dict[str, Any]) -> None:
    assert TrackedServices(service()).update((service(), service(**fields))) == [False]


class MergeCase(NamedTuple):
    """A Service before and after, the resulting Service ports, and the names that are reported as changed."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None
    expected: dict[tuple[str, str], ServicePort]
    changed: tuple[tuple[str, str], ...]


TWO_PORTS = {"ports": (service_port(80, "a"), service_port(443, "b"))}
HTTP, HTTP_UDP = ("http", "TCP"), ("http", "UDP")
A, B, C = ("a", "TCP"), ("b", "TCP"), ("c", "TCP")
PORT_443 = ServicePort("10.96.0.1", 443, "TCP")
MERGES = {
    "Service with two ports added": MergeCase(None, TWO_PORTS, {A: PORT, B: PORT_443}, (A, B)),
    "Service with two ports removed": MergeCase(TWO_PORTS, None, {}, (A, B)),
    "one port removed": MergeCase(TWO_PORTS, {"ports": (service_port(80, "a"),)}, {A: PORT}, (B,)),
    "one port added": MergeCase({"ports": (service_port(80, "a"),)}, TWO_PORTS, {A: PORT, B: PORT_443}, (B,)),
    "one port renamed": MergeCase(
        TWO_PORTS, {"ports": (service_port(80, "a"), service_port(443, "c"))}, {A: PORT, C: PORT_443}, (B, C)
    ),
    "one port renumbered": MergeCase({"ports": (service_port(443),)}, {}, {HTTP: PORT}, (HTTP,)),
    "protocol changed under the same name": MergeCase(
        {},
        {"ports": (service_port(80, "http", "UDP"),)},
        {HTTP_UDP: ServicePort("10.96.0.1", 80, "UDP")},
        (HTTP, HTTP_UDP),
    ),
    "protocol added under the same name": MergeCase(
        {},
        {"ports": (service_port(), service_port(80, "http", "UDP"))},
        {HTTP: PORT, HTTP_UDP: ServicePort("10.96.0.1", 80, "UDP")},
        (HTTP_UDP,),
    ),
    "ports that swap their names": MergeCase(
        TWO_PORTS, {"ports": (service_port(443, "a"), service_port(80, "b"))}, {A: PORT_443, B: PORT}, (A, B)
    ),
    "becomes headless": MergeCase({}, {"cluster_ip": "None"}, {}, (HTTP,)),
    "last port removed": MergeCase({}, {"ports": ()}, {}, (HTTP,)),
    "ClusterIP to LoadBalancer": MergeCase(
        {},
        {**LOAD_BALANCER, "ingresses": (ingress("192.0.2.1"),), "health_check_node_port": 30001},
        {
            HTTP: ServicePort(
                "10.96.0.1",
                80,
                "TCP",
                load_balancer_vips=("192.0.2.1",),
                health_check_node_port=30001,
                external_policy_local=True,
            )
        },
        (HTTP,),
    ),
    "LoadBalancer to ClusterIP": MergeCase(
        {**LOAD_BALANCER, "ingresses": (ingress("192.0.2.1"),)}, {}, {HTTP: PORT}, (HTTP,)
    ),
}


@parametrize_cases(MERGES)
def test_merge_updates_service_ports_and_returns_changed_ones(case: MergeCase) -> None:
    before, after = (None if fields is None else service(**fields) for fields in (case.before, case.after))
    tracked = TrackedServices(*[before] if before else [])
    tracked.update((before, after))
    changed = frozenset(port_name(port, protocol) for port, protocol in case.changed)  # type: ignore[arg-type]
    assert changed == tracked.sync()
    assert case.expected == {(name.port, name.protocol): port for name, port in tracked.ports.items()}


def test_merge_does_not_affect_other_services() -> None:
    web, dns = service(), service("dns", cluster_ip="10.96.0.2")
    tracked = TrackedServices(web, dns)
    tracked.update((web, None))
    assert frozenset({port_name()}) == tracked.sync()
    assert {port_name(service="dns"): OTHER_PORT} == dict(tracked.ports)


def test_services_in_different_namespaces_are_distinct() -> None:
    web, other = service(), service(namespace="other", cluster_ip="10.96.0.2")
    tracked = TrackedServices(web, other)
    assert len(tracked.ports) == 2
    tracked.update((other, None))
    tracked.sync()
    assert {port_name(): PORT} == dict(tracked.ports)


def test_removal_of_unknown_service_is_accepted() -> None:
    """The first event of a Service may be its deletion."""
    tracked = TrackedServices()
    tracked.update((service(), None))
    assert frozenset({port_name()}) == tracked.sync()
    assert dict(tracked.ports) == {}


def test_change_is_recorded_under_the_name_of_the_current_object() -> None:
    tracked = TrackedServices()
    tracked.update((service("old"), service("new")))
    assert _names("new") == tracked.tracker.drain().keys()


def _six_services() -> Iterable[Service]:
    yield service("plain", cluster_ip="10.96.0.1", ports=(service_port(80, "a"), service_port(81, "b")))
    yield service("node-port", cluster_ip="10.96.0.2", type="NodePort", ports=(service_port(node_port=30080),))
    yield service("balanced", cluster_ip="10.96.0.3", ingresses=(ingress("192.0.2.1"),), **LOAD_BALANCER)
    yield service("headless", cluster_ip="None")
    yield service("headless-ports", cluster_ip="None", ports=(service_port(80, "a"), service_port(81, "b")))
    yield service("external", type="ExternalName")


def test_only_service_ports_of_remaining_services_stay() -> None:
    tracked = TrackedServices(*_six_services())
    assert [sum(port.name == service for port in tracked.ports) for service in ("plain", "node-port", "balanced")] == [
        2,
        1,
        1,
    ]
    assert len(tracked.ports) == 4
    tracked.update(*((item, None) for item in _six_services() if item.key.name in ("plain", "balanced", "headless")))
    assert _names("plain", "balanced") == {name.service for name in tracked.sync()}
    assert [port_name(service="node-port")] == list(tracked.ports)
