"""The objects of the test: a namespace, servers with a Service, clients, and pods that show that nodes start pods."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.cluster.images import AGNHOST

NAMESPACE = "faults"
WEB, MANY, BALANCED, CLIENT, PROBE = "web", "many", "balanced", "client", "probe"
HTTP_PORT, UDP_PORT = 80, 81
NODE_PORTS: Mapping[str, Mapping[str, int]] = {WEB: {"tcp": 30080, "udp": 30081}, MANY: {"tcp": 30180, "udp": 30181}}
_HTTP_TARGET, _UDP_TARGET = 8080, 8081
_AT_ONCE = "5%"
_SHUTDOWN_SECONDS = 15
"""How long a server still answers after SIGTERM: Service proxies need some time to follow an EndpointSlice."""


def namespace() -> dict[str, Any]:
    """Return the namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def many_servers(replicas: int) -> Iterator[dict[str, Any]]:
    """Yield a Deployment and its Service whose pods are replaced a few at a time.

    By default, half of them would start or end at once. The neighbours of 300 pods on one machine then need more room
    than the kernel has for those of all nodes, and it drops packets.
    """
    yield from servers(
        MANY, replicas, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": _AT_ONCE, "maxUnavailable": 0}}
    )


def servers(name: str, replicas: int, **fields: Any) -> Iterator[dict[str, Any]]:
    """Yield a Deployment of servers on all nodes, and their Service; ``fields`` are further ones of its spec."""
    command = ["netexec", f"--http-port={_HTTP_TARGET}", f"--udp-port={_UDP_TARGET}"]
    container = {
        **_container(*command, f"--delay-shutdown={_SHUTDOWN_SECONDS}"),
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": _HTTP_TARGET},
            "periodSeconds": 5,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    yield _workload(
        "Deployment",
        name,
        {
            "containers": [container],
            "terminationGracePeriodSeconds": 2 * _SHUTDOWN_SECONDS,
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": name}}}],
        },
        replicas=replicas,
        **fields,
    )
    yield service(name, name, NODE_PORTS[name])


def service(name: str, servers_name: str, node_ports: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return a Service of servers, with NodePorts if some are given."""
    wanted = node_ports or {}
    ports = [
        {"name": "http", "port": HTTP_PORT, "targetPort": _HTTP_TARGET, "protocol": "TCP"},
        {"name": "udp", "port": UDP_PORT, "targetPort": _UDP_TARGET, "protocol": "UDP"},
    ]
    for port in ports:
        if number := wanted.get(str(port["protocol"]).lower()):
            port["nodePort"] = number
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name),
        "spec": {
            "type": "NodePort" if wanted else "ClusterIP",
            "ipFamilyPolicy": "PreferDualStack",
            "selector": {"app": servers_name},
            "ports": ports,
        },
    }


def load_balancer(name: str, servers_name: str) -> dict[str, Any]:
    """Return a Service of servers for which MetalLB announces addresses."""
    item = service(name, servers_name)
    return {**item, "spec": {**item["spec"], "type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}}


def client_pods(nodes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a pod on each node, in whose network namespace a client process runs."""
    for node in nodes:
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(f"{CLIENT}-{node}"),
            "spec": {"nodeName": node, "containers": [_container("pause")], "terminationGracePeriodSeconds": 1},
        }


def probes() -> dict[str, Any]:
    """Return a DaemonSet whose pods are replaced to see that each node starts pods."""
    spec = {"containers": [_container("pause")], "terminationGracePeriodSeconds": 1}
    return _workload("DaemonSet", PROBE, spec)


def _workload(kind: str, name: str, pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": _metadata(name),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **fields,
        },
    }


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE}


def _container(*arguments: str) -> dict[str, Any]:
    return {"name": "main", "image": AGNHOST, "args": list(arguments)}
