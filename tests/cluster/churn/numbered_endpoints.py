"""The objects of the measurement: each change adds an endpoint whose address is a number."""

import json
from typing import Any

FIRST = 10 << 24 | 128 << 16
"""10.128.0.0, the address of number 0."""
_PORT = 8080


def address(number: int) -> str:
    """Return the address of a number."""
    return ".".join(map(str, (FIRST + number).to_bytes(4)))


def service(index: int) -> dict[str, Any]:
    """Return a Service."""
    spec = {"clusterIP": f"10.96.{index // 200 + 1}.{index % 200 + 1}", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"churn-{index}"}, "spec": spec}


def slice_of(index: int, numbers: list[int], triggered: str) -> bytes:
    """Return a Service's EndpointSlice, encoded."""
    name, namespace = f"churn-{index}", "default"
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"kubernetes.io/service-name": name},
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": triggered},
    }
    item = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "", "port": _PORT}],
        "endpoints": [
            {"addresses": [address(number)], "conditions": {"ready": True}, "nodeName": "node-2"} for number in numbers
        ],
    }
    return json.dumps(item, separators=(",", ":")).encode()
