"""The objects of the measurement: each change adds an endpoint whose address is a number."""

import json
from typing import Any

FIRST = 10 << 24 | 128 << 16
"""10.128.0.0, the address of number 0."""
PORT, TARGET_PORT = 80, 8080


def address(number: int) -> str:
    """Return the address of a number."""
    return ".".join(map(str, (FIRST + number).to_bytes(4)))


def cluster_ip(index: int) -> str:
    """Return the cluster IP of a Service; there are enough for 50 000."""
    return f"10.96.{index // 200 + 1}.{index % 200 + 1}"


def service(index: int) -> dict[str, Any]:
    """Return a Service."""
    spec = {"clusterIP": cluster_ip(index), "ports": [{"port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"churn-{index}"}, "spec": spec}


def slice_of(index: int, numbers: list[int], triggered: str) -> bytes:
    """Return a Service's EndpointSlice, encoded."""
    return json.dumps(endpoint_slice(index, numbers, triggered), separators=(",", ":")).encode()


def endpoint_slice(index: int, numbers: list[int], triggered: str) -> dict[str, Any]:
    """Return a Service's EndpointSlice; ``triggered`` is the time of the change that it shows, as in RFC 3339."""
    name, namespace = f"churn-{index}", "default"
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"kubernetes.io/service-name": name},
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": triggered},
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "", "port": TARGET_PORT}],
        "endpoints": [
            {"addresses": [address(number)], "conditions": {"ready": True}, "nodeName": "node-2"} for number in numbers
        ],
    }
