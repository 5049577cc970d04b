"""A small shop whose explanations have long and short names, several reasons, and both families."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from knft.cli.commands import cli
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.comparison.explained import object_source
from knft.explain.explain import explain
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.explain.sources import ObjectSource

FLAGS = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--service-cidr", "10.96.0.0/16")


def _service(name: str, created: int, spec: dict[str, Any], balancer: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": f"2026-01-{created:02}T00:00:00Z"},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": [{"ip": balancer}] if balancer else []}},
    }


def _slice(service: str, family: str, port: str, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-{family.lower()}",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": family,
        "ports": [{"name": port, "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


def _endpoint(address: str, node: int, **more: Any) -> dict[str, Any]:
    return {
        "addresses": [address],
        "nodeName": f"node-{node}",
        "zone": "zone-a" if node == 1 else "zone-b",
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": f"frontend-7d4b9c6f5-{address[-2:]}abc"},
        **more,
    }


_TERMINATING = {"conditions": {"ready": False, "serving": True, "terminating": True}}
_NOT_READY = {"conditions": {"ready": False, "serving": False, "terminating": False}}
_FAMILIES: dict[str, Any] = {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00:10:96::10"]}
OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "zone-a"}},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "192.0.2.11"},
                {"type": "InternalIP", "address": "2001:db8:1::11"},
            ]
        },
    },
    _service(
        "frontend",
        1,
        {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4", "IPv6"],
            **_FAMILIES,
            "externalTrafficPolicy": "Local",
            "sessionAffinity": "ClientIP",
            "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        },
        "203.0.113.5",
    ),
    _slice(
        "frontend",
        "IPv4",
        "http",
        [
            _endpoint("10.244.1.11", 1),
            _endpoint("10.244.2.11", 2),
            _endpoint("10.244.2.12", 2, **_NOT_READY),
            _endpoint("10.244.1.13", 1, **_TERMINATING),
        ],
    ),
    _slice("frontend", "IPv6", "http", [_endpoint("fd00:10:244:1::11", 1), _endpoint("fd00:10:244:2::11", 2)]),
    _service(
        "rival",
        2,
        {
            "clusterIP": "10.96.0.11",
            "externalIPs": ["203.0.113.5"],
            "selector": {"app": "rival"},
            "ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 81}],
        },
    ),
    _slice("rival", "IPv4", "web", [_endpoint("10.244.2.11", 2)]),
)


def write_manifests(folder: Path) -> Path:
    """Write the shop as a manifest; return its path."""
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


def invoke(*arguments: str) -> Result:
    """Run ``knft explain`` in this process; raise its errors."""
    return CliRunner().invoke(cli, ["explain", *arguments], catch_exceptions=False)


def source(path: Path, *flags: str) -> ObjectSource:
    """Return the objects of manifests as a source."""
    options = cli.commands["explain"].make_context("explain", ["WHAT", "-f", str(path), *FLAGS, *flags]).params
    return object_source(read_manifests((str(path),), described=True), config_from_options(options))


def explain_in(found: ObjectSource, what: str) -> Explanation:
    """Explain WHAT."""
    return explain(parse_query(what), found)
