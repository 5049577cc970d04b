"""Hypothesis strategies for Services, EndpointSlices and Nodes in both families."""

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c")
_PROTOCOLS = ("TCP", "UDP", "SCTP")


STICKY = {"sessionAffinity": "ClientIP"}
STICKY_SHORT = STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}
RANGES = ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", " 0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0")


@st.composite
def ports(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return the ports of a Service, with distinct names and protocols."""
    keys = draw(
        st.lists(st.tuples(st.sampled_from(("", "http", "dns")), st.sampled_from(_PROTOCOLS)), max_size=3, unique=True)
    )
    return [
        {"name": name, "protocol": protocol, "port": draw(st.integers(80, 82))}
        | ({"nodePort": draw(st.integers(30080, 30082))} if draw(st.booleans()) else {})
        for name, protocol in keys
    ]


@st.composite
def services(draw: st.DrawFn, name: str | None = None) -> dict[str, Any]:
    """Return a Service; cluster IPs, NodePorts and external addresses collide sometimes."""
    number = draw(st.integers(1, 4))
    families = draw(st.sampled_from((("IPv4", "IPv6"), ("IPv6", "IPv4"), ("IPv4",), ("IPv6",))))
    cluster_ips = [_cluster_ip(family, number) for family in families]
    external = draw(st.lists(st.sampled_from(("203.0.113.1", "2001:db8:cb::1", "10.96.0.1")), unique=True))
    policies = st.sampled_from(("Cluster", "Local", None))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name or draw(st.sampled_from(NAMES)),
            "creationTimestamp": draw(st.sampled_from((None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))),
        },
        "spec": {
            "type": draw(st.sampled_from(("NodePort", "LoadBalancer"))),
            "clusterIP": cluster_ips[0],
            "clusterIPs": cluster_ips,
            "ipFamilies": list(families),
            "ports": draw(ports()),
            "externalIPs": external,
            "internalTrafficPolicy": draw(policies),
            "externalTrafficPolicy": draw(policies),
            **draw(st.sampled_from(({}, {}, STICKY, STICKY_SHORT))),
            "loadBalancerSourceRanges": draw(st.lists(st.sampled_from(RANGES), max_size=3)),
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.2"}] if draw(st.booleans()) else []}},
    }


def _cluster_ip(family: str, number: int) -> str:
    return f"10.96.0.{number}" if family == "IPv4" else f"fd00:10:96::{number}"


@st.composite
def endpoint_slices(draw: st.DrawFn, name: str | None = None) -> dict[str, Any]:
    """Return a slice of up to eight endpoints with random conditions."""
    family = draw(st.sampled_from(("IPv4", "IPv6")))
    start = "10.244.0." if family == "IPv4" else "fd00:10:244::"
    chosen = draw(st.lists(st.integers(1, 9), max_size=8, unique=True))
    keys = draw(
        st.lists(st.tuples(st.sampled_from(("", "http", "dns")), st.sampled_from(_PROTOCOLS)), max_size=3, unique=True)
    )
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name or f"slice-{draw(st.integers(1, 4))}",
            "labels": {"kubernetes.io/service-name": draw(st.sampled_from(NAMES))},
        },
        "addressType": family,
        "ports": [{"name": key, "protocol": protocol, "port": draw(st.integers(8080, 8081))} for key, protocol in keys],
        "endpoints": [draw(_endpoint(f"{start}{number}")) for number in chosen],
    }


@st.composite
def _endpoint(draw: st.DrawFn, address: str) -> dict[str, Any]:
    condition = st.sampled_from((None, True, False))
    return {
        "addresses": [address],
        "nodeName": draw(st.sampled_from(("node-1", "node-2"))),
        "conditions": {"ready": draw(condition), "serving": draw(condition), "terminating": draw(condition)},
        "hints": {"forZones": [{"name": draw(st.sampled_from(("zone-a", "zone-b")))}]} if draw(st.booleans()) else None,
    }


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Return the node under test, with or without a zone, with one address or two."""
    addresses = draw(st.lists(st.sampled_from(("192.0.2.11", "2001:db8:1::11")), unique=True))
    zone = draw(st.sampled_from((None, "zone-a", "zone-b")))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }
