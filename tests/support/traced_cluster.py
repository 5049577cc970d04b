"""A small cluster with every reason to drop, reject or masquerade packets, and ``knft trace`` in this process."""

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from knft.cli.commands import cli

FLAGS = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--service-cidr", "10.96.0.0/16")
NODE, OTHER_NODE = "node-1", "node-2"


def _service(name: str, address: int, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, **spec.pop("port", {})}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"clusterIP": f"10.96.0.{address}", "ports": ports, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.5"}]}} if spec.get("type") == "LoadBalancer" else {},
    }


def _endpoints(name: str, *endpoints: tuple[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "nodeName": node} for address, node in endpoints],
    }


_BOTH = (("10.244.1.11", NODE), ("10.244.2.11", OTHER_NODE))
OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    },
    _service("open", 10, type="NodePort", port={"nodePort": 30010}),
    _endpoints("open", *_BOTH),
    _service("elsewhere", 11, type="NodePort", externalTrafficPolicy="Local", port={"nodePort": 30011}),
    _endpoints("elsewhere", ("10.244.2.12", OTHER_NODE)),
    _service("inner", 12, internalTrafficPolicy="Local"),
    _endpoints("inner", ("10.244.2.13", OTHER_NODE)),
    _service("closed", 13, type="NodePort", port={"nodePort": 30013}),
    _service(
        "guarded", 14, type="LoadBalancer", loadBalancerSourceRanges=["198.51.100.0/24"], port={"nodePort": 30014}
    ),
    _endpoints("guarded", *_BOTH),
    _service("sticky", 15, sessionAffinity="ClientIP"),
    _endpoints("sticky", *_BOTH),
    _service("near", 16, type="NodePort", externalTrafficPolicy="Local", port={"nodePort": 30016}),
    _endpoints("near", ("10.244.1.16", NODE), ("10.244.2.16", OTHER_NODE)),
)


def write_manifests(folder: Path) -> Path:
    """Write the cluster as a manifest; return its path."""
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


def invoke_trace(*arguments: str) -> Result:
    """Run ``knft trace`` in this process; raise its errors."""
    return CliRunner().invoke(cli, ["trace", *arguments], catch_exceptions=False)


def trace(*arguments: str) -> dict[str, Any]:
    """Return the JSON output of ``knft trace``."""
    done = invoke_trace(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ends(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ends of a trace with exactly one path ("way" in JSON)."""
    (path,) = found["ways"]
    path_ends: list[dict[str, Any]] = path["ends"]
    return path_ends
