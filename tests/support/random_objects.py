"""Random Kubernetes objects from any ``random.Random``, for property tests and soak tests.

An object is a dictionary of *traits*, one for each field that knft evaluates. A changed object has one trait drawn
again. Each trait has few values, so that frontends collide and Services share endpoints.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

SERVICES = ("a", "b", "c", "d")
SLICES = tuple(f"slice-{number}" for number in range(1, 15))
NODES = ("node-1", "node-2")
"""The node under test, and another one."""
SERVICE_CIDRS = ("kubernetes", "extra")
NODE_ADDRESSES = ("192.0.2.11", "192.0.2.12", "198.51.100.1", "2001:db8:1::11", "2001:db8:1::12", "::1")

Traits = dict[str, Any]
Draw = Callable[[Random], Any]

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_PORT_NAMES = ("http", "", "dns")
_ZONES = ("zone-a", "zone-b")
_READY, _UNREADY = (None, True), (False,)
_RANGES = ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", " 0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0")
_INGRESSES: tuple[Traits, ...] = (
    {"ip": "203.0.113.2"},
    {"ip": "203.0.113.4"},
    {"ip": "203.0.113.5"},
    {"ip": "2001:db8:cb::1"},
    {"ip": "2001:db8:cb::2"},
    {"ip": "203.0.113.3", "ipMode": "Proxy"},
)
_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112", "10.97.0.0/24", "10.96.128.0/17")


def _choice(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def _mostly(usual: Draw, unusual: Draw) -> Draw:
    """Return a draw that is ``usual`` nine times out of ten."""
    return lambda rng: (usual if rng.random() < 0.9 else unusual)(rng)


def _sample(values: tuple[Any, ...], most: int) -> Draw:
    return lambda rng: rng.sample(values, rng.randint(0, most))


def _sticky(seconds: int) -> Traits:
    return {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}


def _keys(rng: Random) -> list[tuple[str, str]]:
    """Return distinct pairs of port name and protocol."""
    pairs = [(name, protocol) for name in _PORT_NAMES for protocol in _PROTOCOLS]
    # Prefers the first pair, so that Services and slices match.
    return pairs[:1] if rng.random() < 0.85 else rng.sample(pairs, rng.randint(0, 4))


def _service_ports(rng: Random) -> list[Traits]:
    return [
        {"name": name, "protocol": protocol, "port": rng.choice((80, 80, 81))}
        | ({"nodePort": rng.randint(30080, 30082)} if rng.random() < 0.5 else {})
        for name, protocol in _keys(rng)
    ]


def _slice_ports(rng: Random) -> list[Traits]:
    return [{"name": name, "protocol": protocol, "port": rng.randint(8080, 8081)} for name, protocol in _keys(rng)]


def _endpoint(rng: Random) -> Traits:
    """Return an endpoint with random conditions; its address is a number, for either family."""
    condition = _mostly(_choice(*_READY), _choice(*_UNREADY)) if rng.random() < 0.7 else _choice(*_READY, *_UNREADY)
    return {
        "nodeName": rng.choice(("node-1", "node-2")),
        "conditions": {name: condition(rng) for name in ("ready", "serving")} | {"terminating": rng.random() < 0.2},
        "zone": rng.choice(_ZONES),
    }


def _endpoints(rng: Random) -> dict[int, Traits]:
    return {number: _endpoint(rng) for number in rng.sample(range(1, 9), rng.randint(0, 5))}


_DRAINED_SINCE = "2026-01-02T00:00:00Z"
"""The creation time of the Services that have the annotation ``knft.dev/drain``."""
_HASHED_NUMBERS = (2, 3, 4)
"""The numbers of the cluster IPs of the Services that may have the annotation ``knft.dev/load-balancing``."""
_LOAD_BALANCING = {0: "maglev", 1: "source-hash"}
"""Its value by number of external IPs: it depends on other traits than the annotation ``knft.dev/drain``."""

SERVICE: Mapping[str, Draw] = {
    "type": _mostly(_choice("NodePort", "LoadBalancer"), _choice("ClusterIP", "ExternalName")),
    "families": _mostly(_choice(("IPv4", "IPv6"), ("IPv6", "IPv4")), _choice(("IPv4",), ("IPv6",))),
    "number": _mostly(_choice(1, 2, 3, 4), _choice(None)),
    "ports": _service_ports,
    "externalIPs": _sample(("203.0.113.1", "2001:db8:cb::1", "10.96.0.1", "203.0.113.2"), 3),
    "ingress": _sample(_INGRESSES, 4),
    "internalTrafficPolicy": _choice(None, "Cluster", "Local"),
    "externalTrafficPolicy": _choice(None, "Cluster", "Local"),
    "affinity": _choice({}, {}, {"sessionAffinity": "ClientIP"}, _sticky(5), _sticky(60)),
    "loadBalancerSourceRanges": _sample(_RANGES, 4),
    "created": _choice(None, "2026-01-01T00:00:00Z", _DRAINED_SINCE),
    "labels": _mostly(_choice({}), _choice({"service.kubernetes.io/service-proxy-name": "another"})),
}

SLICE: Mapping[str, Draw] = {
    "service": _choice(*SERVICES),
    "family": _choice("IPv4", "IPv6"),
    "ports": _slice_ports,
    "endpoints": _endpoints,
    # Hints count only where every endpoint has one.
    "hinted": _mostly(_choice("all"), _choice("none")),
    "headless": _mostly(_choice({}), _choice({"service.kubernetes.io/headless": ""})),
}

NODE: Mapping[str, Draw] = {
    "zone": _choice(None, *_ZONES),
    "addresses": _sample(("192.0.2.11", "2001:db8:1::11", "192.0.2.12"), 3),
    "podCIDRs": _sample(("10.244.1.0/24", "fd00:10:244:1::/64", "10.244.2.0/24"), 2),
}

SERVICE_CIDR: Mapping[str, Draw] = {"cidrs": _sample(_CIDRS, 3)}

KINDS: Mapping[str, Mapping[str, Draw]] = {
    "Service": SERVICE,
    "EndpointSlice": SLICE,
    "Node": NODE,
    "ServiceCIDR": SERVICE_CIDR,
}


def random_traits(kind: str, rng: Random) -> Traits:
    """Return the traits of a new object."""
    return {name: draw(rng) for name, draw in KINDS[kind].items()}


def changed_traits(kind: str, traits: Traits, rng: Random) -> Traits:
    """Return the traits with one drawn again."""
    name = rng.choice(tuple(KINDS[kind]))
    if name == "endpoints" and traits[name] and rng.random() < 0.7:
        return traits | {name: _one_endpoint_changed(traits[name], rng)}
    return traits | {name: KINDS[kind][name](rng)}


def _one_endpoint_changed(endpoints: dict[int, Traits], rng: Random) -> dict[int, Traits]:
    """Return the endpoints with one removed, added or changed."""
    number = rng.choice((*endpoints, rng.randint(1, 8)))
    others = {key: endpoint for key, endpoint in endpoints.items() if key != number}
    return others if rng.random() < 0.4 else others | {number: _endpoint(rng)}


def manifest(kind: str, name: str, traits: Traits) -> dict[str, Any]:
    """Return the object's manifest."""
    return {"metadata": {"name": name}} | _MANIFEST_WRITERS[kind](name, traits)


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
        "metadata": {
            "name": name,
            "labels": traits["labels"],
            "annotations": _annotations(traits),
            "creationTimestamp": traits["created"],
        },
        "spec": spec | {field: traits[field] for field in same} | traits["affinity"],
        "status": {"loadBalancer": {"ingress": traits["ingress"]}},
    }


def _annotations(traits: Traits) -> dict[str, str]:
    """Return annotations that other traits determine: nothing is drawn, so that histories of the pinned seeds stay."""
    annotations = {"knft.dev/drain": "reset"} if traits["created"] == _DRAINED_SINCE else {}
    is_hashed = traits["number"] in _HASHED_NUMBERS
    load_balancing = _LOAD_BALANCING.get(len(traits["externalIPs"])) if is_hashed else None
    return annotations | ({"knft.dev/load-balancing": load_balancing} if load_balancing else {})


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


_MANIFEST_WRITERS: Mapping[str, Callable[[str, Traits], dict[str, Any]]] = {
    "Service": _service,
    "EndpointSlice": _slice,
    "Node": _node,
    "ServiceCIDR": _service_cidr,
}
