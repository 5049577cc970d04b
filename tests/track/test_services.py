"""Changes of Services between two syncs (docs/behaviour/tracking.md#services)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import ClientIPConfig, Labels, Service, SessionAffinityConfig
from knft.model.service_port import ServicePort
from knft.track.services import ServiceChangeTracker, ServicePortMap
from tests.support.kube_objects import ingress, parametrize_rows, port_name, service, service_port

WEB = NamespacedName("default", "web")
PORT = ServicePort("10.96.0.1", 80, "TCP")
OTHER_PORT = ServicePort("10.96.0.2", 80, "TCP")
NOTHING_NEW = frozenset[ServicePortName]()


class Family4:
    """A tracker and a map of IPv4, as a state holds them."""

    def __init__(self, *known: Service) -> None:
        """Start with Services that an earlier sync has merged."""
        self.tracker = ServiceChangeTracker(Family.IPV4)
        self.ports = ServicePortMap()
        for found in known:
            self.tracker.update(None, found)
        self.ports.update(self.tracker)

    def told(self, *changes: tuple[Service | None, Service | None]) -> list[bool]:
        """Tell the tracker; return its answers."""
        return [self.tracker.update(previous, current) for previous, current in changes]

    def sync(self) -> frozenset[ServicePortName]:
        """Merge what is pending."""
        return self.ports.update(self.tracker)


def _names(*names: str) -> frozenset[NamespacedName]:
    return frozenset(NamespacedName("default", name) for name in names)


def test_new_service_is_pending_until_merge() -> None:
    family = Family4()
    assert family.told((None, service())) == [True]
    assert family.tracker.pending == 1
    assert dict(family.ports) == {}
    assert frozenset({port_name()}) == family.sync()
    assert {port_name(): PORT} == dict(family.ports)
    assert family.tracker.pending == 0
    assert family.sync() == NOTHING_NEW


def test_update_without_objects_is_not_counted() -> None:
    family = Family4()
    assert family.told((None, None)) == [False]
    assert family.tracker.changes_total == 0


def test_every_update_with_an_object_is_counted() -> None:
    family = Family4()
    family.told((None, service()), (service(), service()), (service(), None))
    assert family.tracker.changes_total == 3


def test_add_and_delete_before_a_sync_cancel_out() -> None:
    family = Family4()
    assert family.told((None, service()), (service(), None)) == [True, False]
    assert family.sync() == NOTHING_NEW


def test_delete_and_add_before_a_sync_cancel_out() -> None:
    family = Family4(service())
    assert family.told((service(), None), (None, service())) == [True, False]
    assert family.sync() == NOTHING_NEW
    assert {port_name(): PORT} == dict(family.ports)


def test_edit_and_revert_before_a_sync_cancel_out() -> None:
    family = Family4(service())
    edited = service(cluster_ip="10.96.0.2")
    assert family.told((service(), edited), (edited, service())) == [True, False]


def test_first_pending_update_provides_the_previous_state() -> None:
    """Later updates carry objects that no sync has seen; what was merged is what the first one began with."""
    ports = [(service_port(number, name),) for number, name in ((80, "a"), (81, "b"), (82, "c"))]
    old, between, new = (service(ports=entry) for entry in ports)
    family = Family4(old)
    assert family.told((old, between), (between, new)) == [True, True]
    update = family.sync()
    assert frozenset({port_name("a"), port_name("c")}) == update
    assert {port_name("c"): ServicePort("10.96.0.1", 82, "TCP")} == dict(family.ports)


def test_update_returns_whether_any_service_is_pending() -> None:
    """A no-op of one Service answers True while another is pending: unlike endpoints, on purpose."""
    web, dns = service(), service("dns", cluster_ip="10.96.0.2")
    family = Family4(web)
    assert family.told((web, web), (None, dns), (web, web)) == [False, True, True]
    assert frozenset({port_name(service="dns")}) == family.sync()
    assert family.told((web, web)) == [False]


class Ignored(NamedTuple):
    """Fields of a Service that means nothing to this family."""

    fields: dict[str, Any]


IGNORED = {
    "headless": Ignored({"cluster_ip": "None"}),
    "without a cluster IP": Ignored({"cluster_ip": ""}),
    "ExternalName with a cluster IP": Ignored({"type": "ExternalName"}),
    "of the other family": Ignored({"cluster_ip": "fd00::1", "cluster_ips": ("fd00::1",), "ip_families": ("IPv6",)}),
}


@parametrize_rows(IGNORED)
def test_ignored_service_is_never_pending(row: Ignored) -> None:
    family = Family4()
    found = service(**row.fields)
    assert family.told((None, found), (found, None)) == [False, False]
    assert family.sync() == NOTHING_NEW


def test_service_without_ports_is_pending() -> None:
    family = Family4()
    assert family.told((None, service(ports=()))) == [True]
    assert family.sync() == NOTHING_NEW


LOAD_BALANCER: dict[str, Any] = {"type": "LoadBalancer", "external_traffic_policy": "Local"}
EDITS: dict[str, dict[str, Any]] = {
    "cluster IP": {"cluster_ip": "10.96.0.2"},
    "port": {"ports": (service_port(81),)},
    "port's name": {"ports": (service_port(80, "other"),)},
    "protocol": {"ports": (service_port(80, "http", "UDP"),)},
    "one port more": {"ports": (service_port(), service_port(81, "other"))},
    "node port": {"ports": (service_port(node_port=30080),)},
    "VIP": {"ingresses": (ingress("192.0.2.1"),)},
    "affinity": {"session_affinity": "ClientIP"},
    "affinity's timeout": {
        "session_affinity": "ClientIP",
        "session_affinity_config": SessionAffinityConfig(ClientIPConfig(5)),
    },
    "external IPs": {"external_ips": ("203.0.113.9",)},
    "source ranges": {"load_balancer_source_ranges": ("10.0.0.0/8",)},
    "external policy": LOAD_BALANCER,
    "internal policy": {"internal_traffic_policy": "Local"},
    "headless now": {"cluster_ip": "None"},
    "ExternalName now": {"type": "ExternalName"},
}


@pytest.mark.parametrize("fields", list(EDITS.values()), ids=list(EDITS))
def test_edit_of_used_field_is_pending(fields: dict[str, Any]) -> None:
    assert Family4(service()).told((service(), service(**fields))) == [True]


def test_edit_of_affinity_timeout_is_pending() -> None:
    before, after = (
        service(session_affinity="ClientIP", session_affinity_config=SessionAffinityConfig(ClientIPConfig(seconds)))
        for seconds in (5, 6)
    )
    assert Family4(before).told((before, after)) == [True]


def test_edit_of_health_check_port_is_pending() -> None:
    before, after = (service(**LOAD_BALANCER, health_check_node_port=port) for port in (30001, 30002))
    assert Family4(before).told((before, after)) == [True]


UNUSED: dict[str, dict[str, Any]] = {
    "labels": {"labels": Labels(zone="zone-a")},
    "ingress of mode Proxy": {"ingresses": (ingress("192.0.2.1", "Proxy"),)},
    "ingress by hostname": {"ingresses": (ingress(None),)},
    "external IP of the other family": {"external_ips": ("fd00:e::9",)},
    "source range of the other family": {"load_balancer_source_ranges": ("fd00::/8",)},
    "external policy without outside access": {"external_traffic_policy": "Local"},
    "health check port without policy Local": {"health_check_node_port": 30001},
    "another spelling of the cluster IP": {"cluster_ip": "010.096.000.001"},
    "affinity None instead of nothing": {"session_affinity": "None"},
    "policy Cluster instead of nothing": {"internal_traffic_policy": "Cluster"},
}


@pytest.mark.parametrize("fields", list(UNUSED.values()), ids=list(UNUSED))
def test_edit_of_unused_field_is_not_pending(fields: dict[str, Any]) -> None:
    assert Family4(service()).told((service(), service(**fields))) == [False]


class Merge(NamedTuple):
    """Services before and after, the Service ports then in the map, and those of them that are reported changed."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None
    expected: dict[tuple[str, str], ServicePort]
    changed: tuple[tuple[str, str], ...]


TWO_PORTS = {"ports": (service_port(80, "a"), service_port(443, "b"))}
HTTP, HTTP_UDP = ("http", "TCP"), ("http", "UDP")
A, B, C = ("a", "TCP"), ("b", "TCP"), ("c", "TCP")
PORT_443 = ServicePort("10.96.0.1", 443, "TCP")
MERGES = {
    "added with two ports": Merge(None, TWO_PORTS, {A: PORT, B: PORT_443}, (A, B)),
    "removed with both": Merge(TWO_PORTS, None, {}, (A, B)),
    "one port removed": Merge(TWO_PORTS, {"ports": (service_port(80, "a"),)}, {A: PORT}, (B,)),
    "one port added": Merge({"ports": (service_port(80, "a"),)}, TWO_PORTS, {A: PORT, B: PORT_443}, (B,)),
    "one port renamed": Merge(
        TWO_PORTS, {"ports": (service_port(80, "a"), service_port(443, "c"))}, {A: PORT, C: PORT_443}, (B, C)
    ),
    "one port renumbered": Merge({"ports": (service_port(443),)}, {}, {HTTP: PORT}, (HTTP,)),
    "protocol changed under the same name": Merge(
        {},
        {"ports": (service_port(80, "http", "UDP"),)},
        {HTTP_UDP: ServicePort("10.96.0.1", 80, "UDP")},
        (HTTP, HTTP_UDP),
    ),
    "protocol added under the same name": Merge(
        {},
        {"ports": (service_port(), service_port(80, "http", "UDP"))},
        {HTTP: PORT, HTTP_UDP: ServicePort("10.96.0.1", 80, "UDP")},
        (HTTP_UDP,),
    ),
    "ports that swap their names": Merge(
        TWO_PORTS, {"ports": (service_port(443, "a"), service_port(80, "b"))}, {A: PORT_443, B: PORT}, (A, B)
    ),
    "headless now": Merge({}, {"cluster_ip": "None"}, {}, (HTTP,)),
    "its last port removed": Merge({}, {"ports": ()}, {}, (HTTP,)),
    "ClusterIP to LoadBalancer": Merge(
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
    "LoadBalancer to ClusterIP": Merge(
        {**LOAD_BALANCER, "ingresses": (ingress("192.0.2.1"),)}, {}, {HTTP: PORT}, (HTTP,)
    ),
}


@parametrize_rows(MERGES)
def test_merge_updates_service_ports_and_returns_changed_ones(row: Merge) -> None:
    before, after = (None if fields is None else service(**fields) for fields in (row.before, row.after))
    family = Family4(*[before] if before else [])
    family.told((before, after))
    changed = frozenset(port_name(port, protocol) for port, protocol in row.changed)  # type: ignore[arg-type]
    assert changed == family.sync()
    assert row.expected == {(name.port, name.protocol): port for name, port in family.ports.items()}


def test_merge_does_not_affect_other_services() -> None:
    web, dns = service(), service("dns", cluster_ip="10.96.0.2")
    family = Family4(web, dns)
    family.told((web, None))
    assert frozenset({port_name()}) == family.sync()
    assert {port_name(service="dns"): OTHER_PORT} == dict(family.ports)


def test_services_in_different_namespaces_are_distinct() -> None:
    web, other = service(), service(namespace="other", cluster_ip="10.96.0.2")
    family = Family4(web, other)
    assert len(family.ports) == 2
    family.told((other, None))
    family.sync()
    assert {port_name(): PORT} == dict(family.ports)


def test_removal_of_unknown_service_is_accepted() -> None:
    """A deletion may be the first that the tracker hears of a Service."""
    family = Family4()
    family.told((service(), None))
    assert frozenset({port_name()}) == family.sync()
    assert dict(family.ports) == {}


def test_change_belongs_to_the_current_objects_name() -> None:
    family = Family4()
    family.told((service("old"), service("new")))
    assert _names("new") == family.tracker.drain().keys()


def _six_services() -> Iterable[Service]:
    yield service("plain", cluster_ip="10.96.0.1", ports=(service_port(80, "a"), service_port(81, "b")))
    yield service("node-port", cluster_ip="10.96.0.2", type="NodePort", ports=(service_port(node_port=30080),))
    yield service("balanced", cluster_ip="10.96.0.3", ingresses=(ingress("192.0.2.1"),), **LOAD_BALANCER)
    yield service("headless", cluster_ip="None")
    yield service("headless-ports", cluster_ip="None", ports=(service_port(80, "a"), service_port(81, "b")))
    yield service("external", type="ExternalName")


def test_only_service_ports_of_remaining_services_stay() -> None:
    family = Family4(*_six_services())
    assert [sum(name.name == of for name in family.ports) for of in ("plain", "node-port", "balanced")] == [2, 1, 1]
    assert len(family.ports) == 4
    family.told(*((found, None) for found in _six_services() if found.key.name in ("plain", "balanced", "headless")))
    assert _names("plain", "balanced") == {name.service for name in family.sync()}
    assert [port_name(service="node-port")] == list(family.ports)
