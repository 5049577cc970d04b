"""Random Kubernetes objects, field by field, out of any ``random.Random``: that of a property test, or of a soak.

An object is a dictionary of *traits*, one for each field that means something to knft. A changed object is the same
dictionary with one trait drawn anew. There are few values of each, so that frontends collide and endpoints are shared.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

SERVICES = ("a", "b", "c", "d")
SLICES = tuple(f"slice-{number}" for number in range(1, 15))
NODES = ("node-1", "node-2")
"""The node under test, and one that is none of its business."""
SERVICE_CIDRS = ("kubernetes", "extra")
MACHINE_ADDRESSES = ("192.0.2.11", "192.0.2.12", "198.51.100.1", "2001:db8:1::11", "2001:db8:1::12", "::1")

Traits = dict[str, Any]
Draw = Callable[[Random], Any]

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_PORT_NAMES = ("http", "", "dns")
_ZONES = ("zone-a", "zone-b")
_READY, _UNREADY = (None, True), (False,)
_RANGES = ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", " 0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0")
_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112", "10.97.0.0/24", "10.96.128.0/17")


def _one_of(*values: Any) -> Draw:
    return lambda chance: chance.choice(values)


def _mostly(usual: Draw, unusual: Draw) -> Draw:
    """Return a draw that is ``usual`` nine times of ten."""
    return lambda chance: (usual if chance.random() < 0.9 else unusual)(chance)


def _some_of(values: tuple[Any, ...], most: int) -> Draw:
    return lambda chance: chance.sample(values, chance.randint(0, most))


def _sticky(seconds: int) -> Traits:
    return {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}


def _keys(chance: Random) -> list[tuple[str, str]]:
    """Return names and protocols of ports, each pair once."""
    pairs = [(name, protocol) for name in _PORT_NAMES for protocol in _PROTOCOLS]
    # The first pair more often than others, so that Services and slices meet.
    return pairs[:1] if chance.random() < 0.85 else chance.sample(pairs, chance.randint(0, 4))


def _service_ports(chance: Random) -> list[Traits]:
    return [
        {"name": name, "protocol": protocol, "port": chance.choice((80, 80, 81))}
        | ({"nodePort": chance.randint(30080, 30082)} if chance.random() < 0.5 else {})
        for name, protocol in _keys(chance)
    ]


def _slice_ports(chance: Random) -> list[Traits]:
    return [
        {"name": name, "protocol": protocol, "port": chance.randint(8080, 8081)} for name, protocol in _keys(chance)
    ]


def _endpoint(chance: Random) -> Traits:
    """Return an endpoint in any condition; its address is a number, for either family."""
    condition = _mostly(_one_of(*_READY), _one_of(*_UNREADY)) if chance.random() < 0.7 else _one_of(*_READY, *_UNREADY)
    return {
        "nodeName": chance.choice(("node-1", "node-2")),
        "conditions": {name: condition(chance) for name in ("ready", "serving")}
        | {"terminating": chance.random() < 0.2},
        "zone": chance.choice(_ZONES),
    }


def _endpoints(chance: Random) -> dict[int, Traits]:
    return {number: _endpoint(chance) for number in chance.sample(range(1, 9), chance.randint(0, 5))}


SERVICE: Mapping[str, Draw] = {
    "type": _mostly(_one_of("NodePort", "LoadBalancer"), _one_of("ClusterIP", "ExternalName")),
    "families": _mostly(_one_of(("IPv4", "IPv6"), ("IPv6", "IPv4")), _one_of(("IPv4",), ("IPv6",))),
    "number": _mostly(_one_of(1, 2, 3, 4), _one_of(None)),
    "ports": _service_ports,
    "externalIPs": _some_of(("203.0.113.1", "2001:db8:cb::1", "10.96.0.1", "203.0.113.2"), 3),
    "ingress": _some_of(({"ip": "203.0.113.2"}, {"ip": "2001:db8:cb::1"}, {"ip": "203.0.113.3", "ipMode": "Proxy"}), 2),
    "internalTrafficPolicy": _one_of(None, "Cluster", "Local"),
    "externalTrafficPolicy": _one_of(None, "Cluster", "Local"),
    "affinity": _one_of({}, {}, {"sessionAffinity": "ClientIP"}, _sticky(5), _sticky(60)),
    "loadBalancerSourceRanges": _some_of(_RANGES, 3),
    "created": _one_of(None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    "labels": _mostly(_one_of({}), _one_of({"service.kubernetes.io/service-proxy-name": "another"})),
}

SLICE: Mapping[str, Draw] = {
    "service": _one_of(*SERVICES),
    "family": _one_of("IPv4", "IPv6"),
    "ports": _slice_ports,
    "endpoints": _endpoints,
    # Hints count only where every endpoint has one.
    "hinted": _mostly(_one_of("all"), _one_of("none")),
    "headless": _mostly(_one_of({}), _one_of({"service.kubernetes.io/headless": ""})),
}

NODE: Mapping[str, Draw] = {
    "zone": _one_of(None, *_ZONES),
    "addresses": _some_of(("192.0.2.11", "2001:db8:1::11", "192.0.2.12"), 3),
    "podCIDRs": _some_of(("10.244.1.0/24", "fd00:10:244:1::/64", "10.244.2.0/24"), 2),
}

SERVICE_CIDR: Mapping[str, Draw] = {"cidrs": _some_of(_CIDRS, 3)}

KINDS: Mapping[str, Mapping[str, Draw]] = {
    "Service": SERVICE,
    "EndpointSlice": SLICE,
    "Node": NODE,
    "ServiceCIDR": SERVICE_CIDR,
}


def drawn(kind: str, chance: Random) -> Traits:
    """Return the traits of a new object."""
    return {name: draw(chance) for name, draw in KINDS[kind].items()}


def changed(kind: str, traits: Traits, chance: Random) -> Traits:
    """Return the traits with one drawn anew."""
    name = chance.choice(tuple(KINDS[kind]))
    if name == "endpoints" and traits[name] and chance.random() < 0.7:
        return traits | {name: _one_endpoint_changed(traits[name], chance)}
    return traits | {name: KINDS[kind][name](chance)}


def _one_endpoint_changed(endpoints: dict[int, Traits], chance: Random) -> dict[int, Traits]:
    """Return the endpoints with one removed, added, or in another condition."""
    number = chance.choice((*endpoints, chance.randint(1, 8)))
    others = {key: endpoint for key, endpoint in endpoints.items() if key != number}
    return others if chance.random() < 0.4 else others | {number: _endpoint(chance)}


def manifest(kind: str, name: str, traits: Traits) -> dict[str, Any]:
    """Write an object down as a user would."""
    return {"metadata": {"name": name}} | _WRITTEN[kind](name, traits)


def _service(name: str, traits: Traits) -> dict[str, Any]:
    cluster_ips = [_cluster_ip(family, traits["number"]) for family in traits["families"]]
    same = (
        "type",
        "ports",
        "externalIPs",
        "internalTrafficPolicy",
        "externalTrafficPolicy",
        "loadBalancerSourceRanges",
    )
    spec = {"clusterIP": cluster_ips[0], "clusterIPs": cluster_ips, "ipFamilies": list(traits["families"])}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": traits["labels"], "creationTimestamp": traits["created"]},
        "spec": spec | {field: traits[field] for field in same} | traits["affinity"],
        "status": {"loadBalancer": {"ingress": traits["ingress"]}},
    }


def _cluster_ip(family: str, number: int | None) -> str:
    if number is None:
        return "None"
    return f"10.96.0.{number}" if family == "IPv4" else f"fd00:10:96::{number}"


def _slice(name: str, traits: Traits) -> dict[str, Any]:
    start = "10.244.0." if traits["family"] == "IPv4" else "fd00:10:244::"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": traits["service"], **traits["headless"]}},
        "addressType": traits["family"],
        "ports": traits["ports"],
        "endpoints": [
            _written_endpoint(f"{start}{number}", endpoint, hinted=traits["hinted"] == "all")
            for number, endpoint in traits["endpoints"].items()
        ],
    }


def _written_endpoint(address: str, endpoint: Traits, *, hinted: bool) -> dict[str, Any]:
    hints = {"forZones": [{"name": endpoint["zone"]}]} if hinted else None
    same = {field: endpoint[field] for field in ("nodeName", "conditions")}
    return {"addresses": [address], "hints": hints, **same}


def _node(name: str, traits: Traits) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": traits["zone"]}},
        "spec": {"podCIDRs": traits["podCIDRs"]},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in traits["addresses"]]},
    }


def _service_cidr(name: str, traits: Traits) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": name},
        "spec": {"cidrs": traits["cidrs"]},
    }


_WRITTEN: Mapping[str, Callable[[str, Traits], dict[str, Any]]] = {
    "Service": _service,
    "EndpointSlice": _slice,
    "Node": _node,
    "ServiceCIDR": _service_cidr,
}
