"""Small clusters with every kind of Service, generated from a seed.

A cluster has few Services, so that naming the right one is significant. No two Services share a frontend, and no
endpoint is a frontend. Every Service is dual-stack.
"""

import json
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random
from typing import Any

from msgspec import Struct

from knft.cli.commands.rule_sets import diff
from knft.model.objects import ObjectChange
from knft.source.paths import read_paths

Object = dict[str, Any]

NODE = "node-1"
NODE_ADDRESSES = ("192.0.2.11", "2001:db8:1::11")
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
POD_CIDRS = ("10.244.0.0/16", "fd00:10:244::/48")
_RANGES = ("198.51.100.0/24", "2001:db8:9::/64")
_MORE_RANGES = ("192.0.2.128/25", "2001:db8:a::/64")


class ServiceFeatures(Struct, frozen=True):
    """The features of a Service; ``local`` and ``remote`` are the numbers of endpoints on this node and on others."""

    name: str
    type: str = "ClusterIP"
    ports: tuple[tuple[str, str, int], ...] = (("http", "TCP", 80),)
    local: int = 1
    remote: int = 2
    external_policy: str = "Cluster"
    internal_policy: str = "Cluster"
    seconds: int | None = None
    external_ips: bool = False
    ranges: bool = False


SERVICES = (
    ServiceFeatures("web", ports=(("http", "TCP", 80), ("dns", "UDP", 53))),
    ServiceFeatures("public", "LoadBalancer", external_policy="Cluster", local=2),
    ServiceFeatures("nearby", "LoadBalancer", external_policy="Local", local=2, remote=1),
    ServiceFeatures("guarded", "LoadBalancer", ranges=True, remote=1),
    ServiceFeatures("loyal", "LoadBalancer", seconds=10800, remote=0, local=2),
    ServiceFeatures("empty", "NodePort", local=0, remote=0),
    ServiceFeatures("absent", "LoadBalancer", external_policy="Local", local=0, remote=1),
    ServiceFeatures("phone", "NodePort", ports=(("sip", "SCTP", 5060), ("rtp", "UDP", 5004)), remote=1),
    ServiceFeatures("routed", external_ips=True, remote=1),
    ServiceFeatures("inward", internal_policy="Local", local=2, remote=1),
    ServiceFeatures("fort", "LoadBalancer", ranges=True, seconds=60, external_policy="Local", local=2, remote=0),
    ServiceFeatures("gone", "LoadBalancer", external_ips=True, local=0, remote=0),
)
"""Every feature, alone and with those that share rules with it."""

_SERVICE_COMBINATIONS = (
    ("web", "nearby", "guarded", "loyal", "empty"),
    ("public", "fort", "phone", "absent", "routed"),
    ("guarded", "nearby", "inward", "gone", "loyal"),
    ("web", "absent", "fort", "empty", "public"),
    ("routed", "phone", "loyal", "gone", "guarded"),
)
"""The Services of a cluster, by seed. Together the combinations have every Service."""


class Cluster(Struct, frozen=True):
    """The objects of a cluster and the flags of knft."""

    seed: int
    changes: tuple[ObjectChange, ...]
    options: dict[str, Any]

    @property
    def node_addresses(self) -> tuple[IPv4Address | IPv6Address, ...]:
        """The addresses that the node has."""
        return tuple(ip_address(address) for address in NODE_ADDRESSES)


def generate_cluster(seed: int) -> Cluster:
    """Generate a cluster."""
    random = Random(f"cluster {seed}")  # noqa: S311 - a seed, no secret
    names = _SERVICE_COMBINATIONS[seed % len(_SERVICE_COMBINATIONS)]
    kinds = [next(kind for kind in SERVICES if kind.name == name) for name in names]
    objects: list[Object] = [_node()]
    for index, kind in enumerate(kinds):
        number = 10 + 10 * index + random.randrange(10)
        objects += [_service(kind, number), *_slices(kind, number, random)]
    data = "\n---\n".join(json.dumps(item) for item in objects).encode()
    scan = read_paths(["-"], data)
    assert not scan.problems, scan.problems
    return Cluster(seed, scan.changes, diff.make_context("diff", _flags(seed)).params)


def _flags(seed: int) -> list[str]:
    flags = ["-f", "-", "--node", NODE, "--cluster-cidr", ",".join(POD_CIDRS)]
    for address in NODE_ADDRESSES:
        flags += ["--node-ip", address]
    if seed % 2:
        flags += ["--service-cidr", ",".join(SERVICE_CIDRS)]
    return flags


def _node() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"]},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in NODE_ADDRESSES]},
    }


def _service(kind: ServiceFeatures, number: int) -> Object:
    spec: Object = {
        "type": kind.type,
        "clusterIP": f"10.96.0.{number}",
        "clusterIPs": [f"10.96.0.{number}", f"fd00:10:96::{number:x}"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
        "internalTrafficPolicy": kind.internal_policy,
        "sessionAffinity": "None",
        "ports": [
            {"name": name, "protocol": protocol, "port": port, "targetPort": 8000 + number}
            for name, protocol, port in kind.ports
        ],
    }
    if kind.seconds is not None:
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": kind.seconds}}}
    if kind.type != "ClusterIP" or kind.external_ips:
        spec["externalTrafficPolicy"] = kind.external_policy
    if kind.type != "ClusterIP":
        for index, port in enumerate(spec["ports"]):
            port["nodePort"] = 30000 + 10 * number + index
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": kind.name, "namespace": "shop"},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": _expose(kind, spec, number)}},
    }


def _expose(kind: ServiceFeatures, spec: Object, number: int) -> list[Object]:
    """Set the external addresses in a Service's spec; return those of its load balancer."""
    if kind.external_ips:
        spec["externalIPs"] = [f"203.0.113.{number}", f"2001:db8:cb::{number:x}"]
    if kind.ranges:
        spec["loadBalancerSourceRanges"] = [*_RANGES, *_MORE_RANGES]
    if kind.type != "LoadBalancer":
        return []
    if kind.external_policy == "Local":
        spec["healthCheckNodePort"] = 32000 + number
    return [{"ip": f"203.0.113.{100 + number}"}, {"ip": f"2001:db8:cb::1:{number:x}"}]


def _slices(kind: ServiceFeatures, number: int, random: Random) -> list[Object]:
    hosts = [*((1, NODE) for _ in range(kind.local)), *((2, "node-2") for _ in range(kind.remote))]
    members = [(subnet, host, random.randrange(256)) for subnet, host in hosts]
    if not members:
        return []
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{kind.name}-{family.lower()}",
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": kind.name},
            },
            "addressType": family,
            "ports": [{"name": name, "protocol": protocol, "port": 8000 + number} for name, protocol, _ in kind.ports],
            "endpoints": [
                {
                    "addresses": [_pod(family, subnet, number, index)],
                    "nodeName": host,
                    "conditions": {"ready": True},
                }
                for index, (subnet, host, _) in enumerate(members)
            ],
        }
        for family in ("IPv4", "IPv6")
    ]


def _pod(family: str, subnet: int, number: int, index: int) -> str:
    """Return the address of an endpoint, in the pod CIDR of its node."""
    low = 4 * (number - 10) + index + 2
    return f"10.244.{subnet}.{low}" if family == "IPv4" else f"fd00:10:244:{subnet}::{low:x}"
