"""A case for each check: the smallest manifests with its finding, and beside them correct ones without any finding."""

from typing import Any, NamedTuple

from knft.lint.checks import Check
from tests.support.lint_objects import (
    DUAL,
    PORT,
    TWO_NODES,
    Object,
    endpoint,
    endpoint_slice,
    load_balancer,
    node,
    node_port,
    service,
    service_cidr,
)

C = Check


class Case(NamedTuple):
    """Manifests with findings of one check, and manifests without a finding of any.

    ``finding`` has the severity, the object with its ports, and the beginning of the text. ``others`` are further
    checks that the same mistake leads to. ``before`` are the manifests before a change, if the finding needs them.
    """

    check: Check
    finding: str
    broken: tuple[Object, ...]
    correct: tuple[Object, ...]
    others: frozenset[Check] = frozenset()
    before: tuple[Object, ...] = ()


WEB = (service(), endpoint_slice())
LOCAL_SLICE = endpoint_slice(endpoint(1), endpoint(2))
ONE_NODE_SLICE = endpoint_slice(endpoint(1))
MISTYPED = endpoint(1) | {"addresses": ["10.244.12.1"]}
HINT_A: Object = {"hints": {"forZones": [{"name": "zone-a"}]}}
STICKY: Object = {"sessionAffinity": "ClientIP"}
MAGLEV: Object = {"knft.dev/load-balancing": "maglev"}
NOT_READY: Object = {"conditions": {"ready": False, "serving": False, "terminating": False}}
TERMINATING: Object = {"conditions": {"ready": False, "serving": True, "terminating": True}}
OPEN = "loadBalancerSourceRanges"
WIDE = ["192.0.2.0/24", "10.244.0.0/16", "198.51.100.0/24"]


def _annotated(annotation: str) -> Object:
    return service(annotations={annotation: "true"})


def _checked_at(port: int) -> tuple[Object, ...]:
    balancer = load_balancer("203.0.113.1", externalTrafficPolicy="Local", healthCheckNodePort=port)
    return (balancer, endpoint_slice(), endpoint_slice(service="api"))


def _many(count: int, **spec: Any) -> list[Object]:
    return [{"name": f"p{number}", "port": 1000 + number, **spec} for number in range(count)]


CASES = (
    Case(
        C.INVALID_OBJECT,
        "problem: manifests: Service shop/web: spec.clusterIP: '10.96.0.300' is not an IP address; skipp",
        (service(clusterIP="10.96.0.300"), endpoint_slice()),
        WEB,
        frozenset({C.SLICE_WITHOUT_SERVICE}),
    ),
    Case(
        C.SERVICE_WITHOUT_SLICES,
        "problem: shop/web: no EndpointSlice has label kubernetes.io/service-name=web",
        (service(), service("api", clusterIP="10.96.0.11"), endpoint_slice(service="api")),
        (service(), service("api", clusterIP="10.96.0.11"), endpoint_slice(service="api"), endpoint_slice()),
    ),
    Case(
        C.FAMILY_WITHOUT_SLICES,
        "problem: shop/web: the Service has a cluster IP for IPv6, but its EndpointSlices are of type IPv4",
        (service(clusterIP="fd00:10:96::10", ipFamilies=["IPv6"]), endpoint_slice()),
        (service(clusterIP="fd00:10:96::10", ipFamilies=["IPv6"]), endpoint_slice(family="IPv6")),
    ),
    Case(
        C.PORT_NAME_WITHOUT_SLICE,
        "problem: shop/web http/tcp: no IPv4 EndpointSlice of the Service has port 'http' (TCP), only 'web' (TCP)",
        (service(), endpoint_slice(ports=[{"name": "web", "port": 8080, "protocol": "TCP"}])),
        WEB,
    ),
    Case(
        C.SLICES_WITHOUT_PORTS,
        "problem: shop/web: the IPv4 EndpointSlices of the Service have endpoints, but no port",
        (service(), endpoint_slice(ports=[{"name": "http", "protocol": "TCP"}])),
        WEB,
        frozenset({C.INVALID_OBJECT}),
    ),
    Case(
        C.SERVICE_WITHOUT_ENDPOINTS,
        "problem: shop/web: the IPv4 EndpointSlices of the Service have no endpoint",
        (service(), {**endpoint_slice(), "endpoints": []}),
        WEB,
    ),
    Case(
        C.NO_READY_ENDPOINT,
        "problem: shop/web http/tcp: no IPv4 endpoint of the Service port is ready or still serves",
        (service(), endpoint_slice(endpoint(**NOT_READY))),
        WEB,
    ),
    Case(
        C.ENDPOINT_IS_CLUSTER_IP,
        "problem: shop/web: IPv4 endpoints (10.96.0.11) are cluster IPs",
        (
            service(),
            endpoint_slice({"addresses": ["10.96.0.11"]}),
            service("api", clusterIP="10.96.0.11"),
            endpoint_slice(service="api"),
        ),
        (service(), endpoint_slice(), service("api", clusterIP="10.96.0.11"), endpoint_slice(service="api")),
    ),
    Case(
        C.CLUSTER_IP_CONFLICT,
        "problem: shop/web node-1: cluster IP 10.244.1.9 is in the pod CIDR 10.244.1.0/24 on node-1",
        (service(clusterIP="10.244.1.9"), endpoint_slice(), *TWO_NODES),
        (service(clusterIP="10.244.3.9"), endpoint_slice(), *TWO_NODES),
    ),
    Case(
        C.EXTERNAL_POLICY_LOCAL,
        "warning: shop/web http/tcp node-2: externalTrafficPolicy is Local, and 1 of 2 nodes (node-2) has no usable",
        (node_port(externalTrafficPolicy="Local"), ONE_NODE_SLICE, *TWO_NODES),
        (node_port(externalTrafficPolicy="Local"), LOCAL_SLICE, *TWO_NODES),
    ),
    Case(
        C.INTERNAL_POLICY_LOCAL,
        "warning: shop/web http/tcp node-2: internalTrafficPolicy is Local, and 1 of 2 nodes (node-2) has no usable",
        (service(internalTrafficPolicy="Local"), ONE_NODE_SLICE, *TWO_NODES),
        (service(internalTrafficPolicy="Local"), LOCAL_SLICE, *TWO_NODES),
    ),
    Case(
        C.CONTESTED_FRONTEND,
        "problem: shop/web http/tcp: frontend :30080/tcp belongs to shop/api:http, whose name sorts first",
        (
            node_port(),
            endpoint_slice(),
            {
                **node_port(clusterIP="10.96.0.11"),
                "metadata": {"name": "api", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            },
            endpoint_slice(service="api"),
        ),
        (
            node_port(),
            endpoint_slice(),
            service("api", type="NodePort", clusterIP="10.96.0.11", ports=[PORT | {"nodePort": 30081}]),
            endpoint_slice(service="api"),
        ),
    ),
    Case(
        C.HEALTH_CHECK_PORT_IN_USE,
        "problem: shop/web: healthCheckNodePort 30080 is also a NodePort of shop/api:http",
        (
            *_checked_at(30080),
            service("api", type="NodePort", clusterIP="10.96.0.11", ports=[PORT | {"nodePort": 30080}]),
        ),
        (
            *_checked_at(30081),
            service("api", type="NodePort", clusterIP="10.96.0.11", ports=[PORT | {"nodePort": 30080}]),
        ),
    ),
    Case(
        C.ADDRESS_OF_OTHER_FAMILY,
        "problem: shop/web: the Service has 2001:db8:cb::1 as load balancer IP, but no IPv6 cluster IP",
        (load_balancer("203.0.113.1", "2001:db8:cb::1"), endpoint_slice()),
        (load_balancer("203.0.113.1"), endpoint_slice()),
    ),
    Case(
        C.NODE_PORT_WITHOUT_ADDRESS,
        "problem: shop/web http/tcp node-1: node-1 has no IPv6 address that accepts NodePorts",
        (
            node_port(clusterIP="fd00:10:96::10"),
            endpoint_slice(endpoint(family="IPv6"), family="IPv6"),
            node(1, families=["IPv4"]),
        ),
        (node_port(clusterIP="fd00:10:96::10"), endpoint_slice(endpoint(family="IPv6"), family="IPv6"), node(1)),
    ),
    Case(
        C.TOO_MANY_ENDPOINTS,
        "problem: shop/web: knft has no IPv4 endpoints of the Service: its EndpointSlices have 151000 endpoints",
        (
            service(),
            endpoint_slice(
                *[endpoint(1, number) for number in range(1, 152)], ports=[{"name": "http", "port": 8080}, *_many(999)]
            ),
        ),
        WEB,
    ),
    Case(
        C.TOO_MANY_FRONTENDS,
        "problem: shop/web: knft does not serve the Service: its 400 ports with 126 addresses have 50400 frontends",
        (load_balancer(*(f"203.0.113.{number}" for number in range(1, 125)), ports=_many(400)), endpoint_slice()),
        (load_balancer("203.0.113.1"), endpoint_slice()),
    ),
    Case(
        C.SERVICE_WITHOUT_PORTS,
        "problem: shop/web: the Service has a cluster IP, but no ports",
        (service(ports=[]), endpoint_slice()),
        WEB,
    ),
    Case(
        C.BECAME_HEADLESS,
        "warning: shop/web: the Service had cluster IP 10.96.0.10 before the change, and is headless after it",
        (service(clusterIP="None"), endpoint_slice()),
        WEB,
        before=WEB,
    ),
    Case(
        C.EXTERNAL_ADDRESS_CONFLICT,
        "warning: shop/web node-2: load balancer IP 192.0.2.12 is the node's address on node-2",
        (load_balancer("192.0.2.12"), endpoint_slice(), *TWO_NODES),
        (load_balancer("203.0.113.1"), endpoint_slice(), *TWO_NODES),
    ),
    Case(
        C.SOURCE_RANGES_EXCLUDE_NODES,
        "warning: shop/web node-1, node-2: no loadBalancerSourceRanges contains the IPv4 addresses of both nodes and",
        (load_balancer("203.0.113.1", **{OPEN: ["198.51.100.0/24"]}), endpoint_slice(), *TWO_NODES),
        (load_balancer("203.0.113.1", **{OPEN: WIDE}), endpoint_slice(), *TWO_NODES),
    ),
    Case(
        C.SOURCE_RANGES_WITHOUT_FAMILY,
        "warning: shop/web: loadBalancerSourceRanges has no IPv6 range, but the Service has a load balancer IP 2001:db",
        (
            load_balancer("2001:db8:cb::1", **{OPEN: WIDE}, **DUAL),
            endpoint_slice(),
            endpoint_slice(family="IPv6"),
        ),
        (
            load_balancer("2001:db8:cb::1", **{OPEN: [*WIDE, "2001:db8::/32"]}, **DUAL),
            endpoint_slice(),
            endpoint_slice(family="IPv6"),
        ),
    ),
    Case(
        C.SOURCE_RANGES_BYPASSED,
        "warning: shop/web: loadBalancerSourceRanges restricts only load balancer IPs, and the Service also has NodePo",
        (
            load_balancer("203.0.113.1", **{OPEN: WIDE}, ports=[PORT | {"nodePort": 30080}]),
            endpoint_slice(),
        ),
        (load_balancer("203.0.113.1", **{OPEN: WIDE}), endpoint_slice()),
    ),
    Case(
        C.LOAD_BALANCER_WITHOUT_ADDRESS,
        "warning: shop/web: the Service has type LoadBalancer, but its status has no load balancer address",
        (load_balancer(), endpoint_slice()),
        (load_balancer("203.0.113.1"), endpoint_slice()),
    ),
    Case(
        C.NO_CLUSTER_IP,
        "warning: shop/web: the Service has no cluster IP",
        (service(clusterIP=""), endpoint_slice()),
        WEB,
    ),
    Case(
        C.OTHER_PROXY,
        "warning: shop/web: the Service has label service.kubernetes.io/service-proxy-name=other",
        (service(labels={"service.kubernetes.io/service-proxy-name": "other"}), endpoint_slice()),
        WEB,
    ),
    Case(
        C.FAMILY_WITHOUT_CLUSTER_IP,
        "warning: shop/web: ipFamilies has IPv6, but clusterIPs has no IPv6 address at that position",
        (service(**{**DUAL, "clusterIPs": ["10.96.0.10"]}), endpoint_slice()),
        (service(**DUAL), endpoint_slice(), endpoint_slice(family="IPv6")),
    ),
    Case(
        C.IGNORED_FIELD,
        "warning: shop/web: spec.sessionAffinity has no effect, because the Service is headless",
        (service(clusterIP="None", **STICKY), endpoint_slice()),
        (service(clusterIP="None"), endpoint_slice()),
    ),
    Case(
        C.HEADLESS_SLICE,
        "warning: shop/web: EndpointSlice web-ipv4 has label service.kubernetes.io/headless, but the Service has a clu",
        (service(), endpoint_slice(labels={"service.kubernetes.io/headless": ""})),
        WEB,
        frozenset({C.SERVICE_WITHOUT_SLICES}),
    ),
    Case(
        C.SLICE_WITHOUT_SERVICE,
        "warning: EndpointSlice shop/lost: label kubernetes.io/service-name=wep names no Service of the namespace; did",
        (*WEB, endpoint_slice(service="wep", name="lost")),
        WEB,
    ),
    Case(
        C.SLICE_WITHOUT_LABEL,
        "warning: EndpointSlice shop/lost-ipv4: the EndpointSlice has no label kubernetes.io/service-name",
        (*WEB, endpoint_slice(service=None)),
        WEB,
    ),
    Case(
        C.ENDPOINT_WITHOUT_NODE,
        "warning: shop/web: the nodeName of IPv4 endpoints (10.244.3.11) is 'node-3', which is no Node of the mani",
        (
            service(internalTrafficPolicy="Local"),
            endpoint_slice(endpoint(1), endpoint(2), endpoint(3)),
            *TWO_NODES,
        ),
        (service(internalTrafficPolicy="Local"), LOCAL_SLICE, *TWO_NODES),
    ),
    Case(
        C.ENDPOINT_OUTSIDE_POD_CIDRS,
        "warning: shop/web: IPv4 endpoints (10.244.12.1) are neither addresses of nodes nor in a podCIDR, unlike those",
        (service(), endpoint_slice(endpoint(1), MISTYPED), *TWO_NODES),
        (service(selector=None), endpoint_slice(endpoint(1), MISTYPED), *TWO_NODES),
    ),
    Case(
        C.ENDPOINT_IN_SEVERAL_SLICES,
        "warning: shop/web: IPv4 endpoints (10.244.1.11:8080) are in several EndpointSlices of the Service, with diff",
        (*WEB, endpoint_slice(endpoint(1, **NOT_READY), name="web-old")),
        (*WEB, endpoint_slice(endpoint(1), name="web-old")),
    ),
    Case(
        C.ONLY_TERMINATING_ENDPOINTS,
        "warning: shop/web http/tcp: no IPv4 endpoint of the Service port is ready, and those that still serve termina",
        (service(), endpoint_slice(endpoint(**TERMINATING))),
        WEB,
    ),
    Case(
        C.HINTS_IGNORED,
        "warning: shop/web http/tcp: 1 of 2 ready IPv4 endpoints of the Service port have no topology hint",
        (service(), endpoint_slice(endpoint(1, **HINT_A), endpoint(2))),
        (service(), endpoint_slice(endpoint(1, **HINT_A), endpoint(2, **HINT_A))),
    ),
    Case(
        C.NODE_WITHOUT_ZONE,
        "warning: Nodes node-2: 1 of 2 nodes (node-2) has no label topology.kubernetes.io/zone, but endpoints of shop/",
        (service(), endpoint_slice(endpoint(1, **HINT_A)), node(1), node(2, zone=None)),
        (service(), endpoint_slice(endpoint(1, **HINT_A)), *TWO_NODES),
    ),
    Case(
        C.AFFINITY_WITH_HINTS,
        "warning: shop/web: sessionAffinity is ClientIP, and trafficDistribution PreferSameZone prefers endpoints by z",
        (service(**STICKY, trafficDistribution="PreferSameZone"), endpoint_slice()),
        (service(**STICKY), endpoint_slice()),
    ),
    Case(
        C.AFFINITY_WITH_HASHING,
        "warning: shop/web: sessionAffinity is ClientIP, and annotation knft.dev/load-balancing is maglev",
        (service(annotations=MAGLEV, **STICKY), endpoint_slice()),
        (service(annotations=MAGLEV), endpoint_slice()),
    ),
    Case(
        C.SERVICE_CIDR_CONFLICT,
        "warning: ServiceCIDR kubernetes node-1: 10.0.0.0/8 overlaps the node's pod CIDR 10.244.1",
        (*WEB, *TWO_NODES, service_cidr("10.0.0.0/8")),
        (*WEB, *TWO_NODES, service_cidr("10.96.0.0/16")),
    ),
    Case(
        C.CLUSTER_IP_OUTSIDE_SERVICE_CIDRS,
        "warning: shop/web: cluster IP 10.97.0.10 is outside of the ServiceCIDRs (10.96.0.0/16)",
        (service(clusterIP="10.97.0.10"), endpoint_slice(), service_cidr("10.96.0.0/16")),
        (service(clusterIP="10.96.0.10"), endpoint_slice(), service_cidr("10.96.0.0/16")),
    ),
    Case(
        C.EXTERNAL_IPS,
        "warning: shop/web: spec.externalIPs is deprecated since Kubernetes 1.36",
        (service(externalIPs=["203.0.113.1"]), endpoint_slice()),
        (load_balancer("203.0.113.1"), endpoint_slice()),
    ),
    Case(
        C.LOAD_BALANCER_IP,
        "warning: shop/web: spec.loadBalancerIP is deprecated since Kubernetes 1.24",
        (load_balancer("203.0.113.1", loadBalancerIP="203.0.113.1"), endpoint_slice()),
        (load_balancer("203.0.113.1"), endpoint_slice()),
    ),
    Case(
        C.DEPRECATED_ANNOTATION,
        "warning: shop/web: annotation service.kubernetes.io/topology-aware-hints is deprecated since Kubernetes 1.27",
        (_annotated("service.kubernetes.io/topology-aware-hints"), endpoint_slice()),
        (service(trafficDistribution="PreferSameZone"), endpoint_slice()),
    ),
    Case(
        C.TOPOLOGY_KEYS,
        "warning: shop/web: spec.topologyKeys was removed in Kubernetes 1.22",
        (service(topologyKeys=["topology.kubernetes.io/zone", "*"]), endpoint_slice()),
        (service(trafficDistribution="PreferSameZone"), endpoint_slice()),
    ),
    Case(
        C.PREFER_CLOSE,
        "warning: shop/web: trafficDistribution PreferClose is deprecated",
        (service(trafficDistribution="PreferClose"), endpoint_slice()),
        (service(trafficDistribution="PreferSameZone"), endpoint_slice()),
    ),
    Case(
        C.MIRRORED_ENDPOINTS,
        "warning: shop/web: EndpointSlice web-ipv4 mirrors an Endpoints object, and Endpoints are deprecated since",
        (
            service(selector=None),
            endpoint_slice(
                labels={"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}
            ),
        ),
        (service(selector=None), endpoint_slice()),
    ),
)
