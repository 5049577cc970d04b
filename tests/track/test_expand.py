"""Expansion of Services into Service ports (docs/behaviour/tracking.md#service-ports)."""

from typing import Any, NamedTuple

import pytest
from msgspec import structs

from knft.families import Family
from knft.model.annotations import Annotations
from knft.model.names import ServicePortName
from knft.model.objects import ClientIPConfig, Service, SessionAffinityConfig
from knft.model.service_port import ServicePort
from knft.track.expand import expand_service
from tests.support.kube_objects import ingress, parametrize_cases, port_name, service, service_port

V4, V6 = "10.96.0.1", "fd00:96::1"
PLAIN = {family: ServicePort(cluster_ip, 80, "TCP") for family, cluster_ip in zip(Family, (V4, V6), strict=True)}
DUAL_STACK: dict[str, Any] = {"cluster_ip": V4, "cluster_ips": (V4, V6), "ip_families": ("IPv4", "IPv6")}


class ExpansionCase(NamedTuple):
    """Fields of a dual-stack Service, and how its ServicePort differs from a plain one in each family."""

    fields: dict[str, Any]
    expected: dict[str, Any]
    ipv6: dict[str, Any] | None = None

    def service_port(self, family: Family) -> ServicePort:
        """Return the expected ServicePort of ``family``."""
        differences = self.expected if family is Family.IPV4 or self.ipv6 is None else self.ipv6
        return structs.replace(PLAIN[family], **differences)


def _affinity(timeout: int | None) -> dict[str, Any]:
    config = SessionAffinityConfig(ClientIPConfig(timeout))
    return {"session_affinity": "ClientIP", "session_affinity_config": config}


PORTS = {
    "only a port": ExpansionCase({}, {}),
    "port 443": ExpansionCase({"ports": (service_port(443),)}, {"port": 443}),
    "UDP": ExpansionCase({"ports": (service_port(protocol="UDP"),)}, {"protocol": "UDP"}),
    "SCTP": ExpansionCase({"ports": (service_port(protocol="SCTP"),)}, {"protocol": "SCTP"}),
    "NodePort": ExpansionCase({"type": "NodePort", "ports": (service_port(node_port=30080),)}, {"node_port": 30080}),
    "NodePort 0 is none": ExpansionCase({"ports": (service_port(node_port=0),)}, {"node_port": 0}),
}

AFFINITY = {
    "no affinity": ExpansionCase({"session_affinity": "None"}, {"affinity_seconds": 0}),
    "ClientIP with a timeout": ExpansionCase(_affinity(60), {"affinity_seconds": 60}),
    "ClientIP without a configuration, 10800": ExpansionCase(
        {"session_affinity": "ClientIP"}, {"affinity_seconds": 10800}
    ),
    "ClientIP without a timeout, 10800": ExpansionCase(_affinity(None), {"affinity_seconds": 10800}),
    "ClientIP with an empty configuration, 10800": ExpansionCase(
        {"session_affinity": "ClientIP", "session_affinity_config": SessionAffinityConfig()},
        {"affinity_seconds": 10800},
    ),
    "timeout without affinity": ExpansionCase({**_affinity(60), "session_affinity": "None"}, {"affinity_seconds": 0}),
}

EXTERNAL_IPS = {
    "order is kept": ExpansionCase(
        {"external_ips": ("203.0.113.9", "203.0.113.1")}, {"external_ips": ("203.0.113.9", "203.0.113.1")}, {}
    ),
    "both families": ExpansionCase(
        {"external_ips": ("203.0.113.9", "fd00:e::9", "203.0.113.1")},
        {"external_ips": ("203.0.113.9", "203.0.113.1")},
        {"external_ips": ("fd00:e::9",)},
    ),
    "leading zeros": ExpansionCase({"external_ips": ("203.000.113.009",)}, {"external_ips": ("203.0.113.9",)}, {}),
    "IPv6 is shortened": ExpansionCase({"external_ips": ("FD00:0E::0009",)}, {}, {"external_ips": ("fd00:e::9",)}),
    "invalid addresses are dropped": ExpansionCase(
        {"external_ips": ("example.org", "203.0.113.9", "")}, {"external_ips": ("203.0.113.9",)}, {}
    ),
}

SOURCE_RANGES = {
    "both families": ExpansionCase(
        {"load_balancer_source_ranges": ("10.0.0.0/8", "fd00::/8", "192.0.2.0/24")},
        {"load_balancer_source_ranges": ("10.0.0.0/8", "192.0.2.0/24")},
        {"load_balancer_source_ranges": ("fd00::/8",)},
    ),
    "whitespace is trimmed": ExpansionCase(
        {"load_balancer_source_ranges": ("  10.0.0.0/8", "192.0.2.0/24\t", "\nfd00::/8 ")},
        {"load_balancer_source_ranges": ("10.0.0.0/8", "192.0.2.0/24")},
        {"load_balancer_source_ranges": ("fd00::/8",)},
    ),
    "leading zeros": ExpansionCase(
        {"load_balancer_source_ranges": ("010.000.0.0/08",)}, {"load_balancer_source_ranges": ("10.0.0.0/8",)}, {}
    ),
    "host bits are cleared": ExpansionCase(
        {"load_balancer_source_ranges": ("10.1.2.3/8",)}, {"load_balancer_source_ranges": ("10.0.0.0/8",)}, {}
    ),
    "all addresses restrict no client": ExpansionCase(
        {"load_balancer_source_ranges": ("10.0.0.0/8", "0.0.0.0/0", "fd00::/8")},
        {},
        {"load_balancer_source_ranges": ("fd00::/8",)},
    ),
    "all IPv6 addresses": ExpansionCase(
        {"load_balancer_source_ranges": ("10.0.0.0/8", " ::/0")}, {"load_balancer_source_ranges": ("10.0.0.0/8",)}, {}
    ),
    "invalid ranges are dropped": ExpansionCase(
        {"load_balancer_source_ranges": ("10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "bad/8", "", "192.0.2.0/24")},
        {"load_balancer_source_ranges": ("192.0.2.0/24",)},
        {},
    ),
}

LOAD_BALANCER = {
    "no mode": ExpansionCase({"ingresses": (ingress("192.0.2.1"),)}, {"load_balancer_vips": ("192.0.2.1",)}, {}),
    "mode VIP": ExpansionCase(
        {"ingresses": (ingress("192.0.2.1", "VIP"),)}, {"load_balancer_vips": ("192.0.2.1",)}, {}
    ),
    "mode Proxy is ignored": ExpansionCase({"ingresses": (ingress("192.0.2.1", "Proxy"),)}, {}),
    "mode Proxy and a VIP": ExpansionCase(
        {"ingresses": (ingress("192.0.2.1", "Proxy"), ingress("192.0.2.2"))}, {"load_balancer_vips": ("192.0.2.2",)}, {}
    ),
    "hostname without an address": ExpansionCase({"ingresses": (ingress(None), ingress(""))}, {}),
    "both families": ExpansionCase(
        {"ingresses": (ingress("192.0.2.1"), ingress("fd00:b::1"))},
        {"load_balancer_vips": ("192.0.2.1",)},
        {"load_balancer_vips": ("fd00:b::1",)},
    ),
}

HEALTH_CHECK = {
    "LoadBalancer and Local": ExpansionCase(
        {"type": "LoadBalancer", "external_traffic_policy": "Local", "health_check_node_port": 30001},
        {"health_check_node_port": 30001, "external_policy_local": True},
    ),
    "LoadBalancer and Local without a port": ExpansionCase(
        {"type": "LoadBalancer", "external_traffic_policy": "Local"},
        {"health_check_node_port": 0, "external_policy_local": True},
    ),
    "LoadBalancer and Cluster": ExpansionCase(
        {"type": "LoadBalancer", "external_traffic_policy": "Cluster", "health_check_node_port": 30001}, {}
    ),
    "LoadBalancer without a policy": ExpansionCase({"type": "LoadBalancer", "health_check_node_port": 30001}, {}),
    "NodePort and Local": ExpansionCase(
        {"type": "NodePort", "external_traffic_policy": "Local", "health_check_node_port": 30001},
        {"health_check_node_port": 0, "external_policy_local": True},
    ),
}

RESET: dict[str, Any] = {"annotations": Annotations(drain="reset")}
DRAIN = {
    "reset": ExpansionCase(RESET, {"resets_connections": True}),
    "keep, the default": ExpansionCase({"annotations": Annotations(drain="keep")}, {}),
    "no annotation of knft": ExpansionCase({"annotations": Annotations()}, {}),
    "reset, UDP": ExpansionCase({**RESET, "ports": (service_port(protocol="UDP"),)}, {"protocol": "UDP"}),
}

BALANCING = {
    value: ExpansionCase({"annotations": Annotations(load_balancing=value)}, {"load_balancing": value})
    for value in ("random", "maglev", "source-hash")
}

LOCAL: dict[str, Any] = {"external_traffic_policy": "Local"}
EXTERNAL_BOTH: dict[str, Any] = {"external_ips": ("203.0.113.9", "fd00:e::9")}
POLICIES = {
    "no policies": ExpansionCase({}, {}),
    "internal Cluster": ExpansionCase({"internal_traffic_policy": "Cluster"}, {}),
    "internal Local": ExpansionCase({"internal_traffic_policy": "Local"}, {"internal_policy_local": True}),
    "external Local on a ClusterIP": ExpansionCase(LOCAL, {"external_policy_local": False}),
    "external Local on a NodePort": ExpansionCase({**LOCAL, "type": "NodePort"}, {"external_policy_local": True}),
    "external Local on a LoadBalancer": ExpansionCase(
        {**LOCAL, "type": "LoadBalancer"}, {"external_policy_local": True}
    ),
    "external Local with external IPs": ExpansionCase(
        {**LOCAL, **EXTERNAL_BOTH},
        {"external_policy_local": True, "external_ips": ("203.0.113.9",)},
        {"external_policy_local": True, "external_ips": ("fd00:e::9",)},
    ),
    "external Cluster on a NodePort": ExpansionCase({"type": "NodePort", "external_traffic_policy": "Cluster"}, {}),
    "creation time": ExpansionCase({"created": "2024-01-01T00:00:00Z"}, {"creation_timestamp": "2024-01-01T00:00:00Z"}),
}


def _check(case: ExpansionCase, family: Family) -> None:
    expanded = expand_service(service(**{**DUAL_STACK, **case.fields}), family)
    [(name, _)] = (expanded or {}).items()
    assert {port_name("http", name.protocol): case.service_port(family)} == expanded


both_families = pytest.mark.parametrize("family", list(Family), ids=[family.value for family in Family])


@both_families
@parametrize_cases(PORTS)
def test_port_node_port_and_protocol_are_copied(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(AFFINITY)
def test_affinity_timeout_defaults_to_three_hours(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(EXTERNAL_IPS)
def test_external_ips_are_filtered_by_family(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(SOURCE_RANGES)
def test_source_ranges_are_trimmed_and_filtered_by_family(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(LOAD_BALANCER)
def test_load_balancer_vips_are_filtered_by_family(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(DRAIN)
def test_annotation_drain_counts_for_tcp_only(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(BALANCING)
def test_annotation_load_balancing_is_copied(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(HEALTH_CHECK)
def test_health_check_requires_load_balancer_and_policy_local(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


@both_families
@parametrize_cases(POLICIES)
def test_external_policy_requires_external_access(case: ExpansionCase, family: Family) -> None:
    _check(case, family)


class ClusterIpCase(NamedTuple):
    """Fields of a Service, and its cluster IP in each family, or None."""

    fields: dict[str, Any]
    ipv4: str | None
    ipv6: str | None


def _cluster_ip_fields(cluster_ips: tuple[str, ...], *families: str) -> dict[str, Any]:
    return {"cluster_ip": cluster_ips[0], "cluster_ips": cluster_ips, "ip_families": families}


CLUSTER_IPS = {
    "single stack IPv4": ClusterIpCase(_cluster_ip_fields((V4,), "IPv4"), V4, None),
    "single stack IPv6": ClusterIpCase(_cluster_ip_fields((V6,), "IPv6"), None, V6),
    "dual stack, IPv4 first": ClusterIpCase(_cluster_ip_fields((V4, V6), "IPv4", "IPv6"), V4, V6),
    "dual stack, IPv6 first": ClusterIpCase(_cluster_ip_fields((V6, V4), "IPv6", "IPv4"), V4, V6),
    "dual stack without the second address": ClusterIpCase(_cluster_ip_fields((V6,), "IPv6", "IPv4"), None, V6),
    "address of the other family": ClusterIpCase(_cluster_ip_fields((V6,), "IPv4"), None, None),
    "no ipFamilies, IPv4": ClusterIpCase({"cluster_ip": V4}, V4, None),
    "no ipFamilies, IPv6": ClusterIpCase({"cluster_ip": V6}, None, V6),
    "empty ipFamilies": ClusterIpCase({"cluster_ip": V4, "ip_families": ()}, V4, None),
    "no ipFamilies, only clusterIP counts": ClusterIpCase({"cluster_ip": V4, "cluster_ips": (V4, V6)}, V4, None),
    "leading zeros": ClusterIpCase({"cluster_ip": "010.096.000.001"}, V4, None),
    "leading zeros in clusterIPs": ClusterIpCase(_cluster_ip_fields(("010.96.0.001",), "IPv4"), V4, None),
    "IPv6 in a long form": ClusterIpCase({"cluster_ip": "FD00:0096:0::0001"}, None, V6),
    "headless": ClusterIpCase({"cluster_ip": "None"}, None, None),
    "headless, dual stack": ClusterIpCase(_cluster_ip_fields(("None",), "IPv4", "IPv6"), None, None),
    "empty clusterIP": ClusterIpCase({"cluster_ip": ""}, None, None),
    "no clusterIP": ClusterIpCase({"cluster_ip": None}, None, None),
    "ExternalName": ClusterIpCase({"type": "ExternalName", "cluster_ip": None}, None, None),
    "ExternalName with clusterIP": ClusterIpCase({"type": "ExternalName"}, None, None),
}


@parametrize_cases(CLUSTER_IPS)
def test_cluster_ip_is_selected_by_position_in_ip_families(case: ClusterIpCase) -> None:
    expanded = [expand_service(service(**case.fields), family) for family in Family]
    cluster_ips = [None if ports is None else [port.cluster_ip for port in ports.values()] for ports in expanded]
    assert [None if address is None else [address] for address in (case.ipv4, case.ipv6)] == cluster_ips


def test_deleted_service_expands_to_none() -> None:
    assert expand_service(None, Family.IPV4) is None


@pytest.mark.parametrize("ports", [None, ()], ids=["missing", "empty"])
def test_service_without_ports_expands_to_no_service_ports(ports: tuple[()] | None) -> None:
    assert expand_service(service(ports=ports), Family.IPV4) == {}


def test_each_port_has_its_own_name() -> None:
    """The name includes the protocol, so TCP and UDP ports may share a port name. An empty port name is valid."""
    ports = (service_port(53, "dns"), service_port(53, "dns", "UDP"), service_port(80, ""))
    dns: Service = service("dns", namespace="kube-system", ports=ports)
    assert {
        ServicePortName("kube-system", "dns", "dns", "TCP"): ServicePort(V4, 53, "TCP"),
        ServicePortName("kube-system", "dns", "dns", "UDP"): ServicePort(V4, 53, "UDP"),
        ServicePortName("kube-system", "dns", "", "TCP"): ServicePort(V4, 80, "TCP"),
    } == expand_service(dns, Family.IPV4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (ServicePortName("ns", "web", "http", "TCP"), "ns/web:http"),
        (ServicePortName("ns", "web", "http", "UDP"), "ns/web:http"),
        (ServicePortName("ns", "web", "", "TCP"), "ns/web"),
    ],
    ids=["named", "protocol is omitted", "unnamed"],
)
def test_text_of_unnamed_port_has_no_colon(name: ServicePortName, expected: str) -> None:
    assert expected == str(name)


class UsedEndpointsCase(NamedTuple):
    """Fields of a ServicePort, whether it is externally accessible, and which endpoints it uses."""

    fields: dict[str, Any]
    accessible: bool
    cluster: bool
    local: bool


INTERNAL: dict[str, Any] = {"internal_policy_local": True}
EXTERNAL: dict[str, Any] = {"external_policy_local": True}
PREDICATES = {
    "only a cluster IP": UsedEndpointsCase({}, accessible=False, cluster=True, local=False),
    "NodePort": UsedEndpointsCase({"node_port": 30080}, accessible=True, cluster=True, local=False),
    "VIP": UsedEndpointsCase({"load_balancer_vips": ("192.0.2.1",)}, accessible=True, cluster=True, local=False),
    "external IP": UsedEndpointsCase({"external_ips": ("203.0.113.9",)}, accessible=True, cluster=True, local=False),
    "internal Local": UsedEndpointsCase(INTERNAL, accessible=False, cluster=False, local=True),
    "internal Local, NodePort": UsedEndpointsCase(
        {**INTERNAL, "node_port": 30080}, accessible=True, cluster=True, local=True
    ),
    "external Local, not accessible": UsedEndpointsCase(EXTERNAL, accessible=False, cluster=True, local=False),
    "external Local, NodePort": UsedEndpointsCase(
        {**EXTERNAL, "node_port": 30080}, accessible=True, cluster=True, local=True
    ),
    "both Local, not accessible": UsedEndpointsCase(
        {**INTERNAL, **EXTERNAL}, accessible=False, cluster=False, local=True
    ),
}


@parametrize_cases(PREDICATES)
def test_used_endpoints_depend_on_policies_and_addresses(case: UsedEndpointsCase) -> None:
    port = structs.replace(PLAIN[Family.IPV4], **case.fields)
    properties = (port.is_externally_accessible, port.uses_cluster_endpoints, port.uses_local_endpoints)
    assert (case.accessible, case.cluster, case.local) == properties
