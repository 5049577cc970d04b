"""One node, one Service in all protocols, and flows to it (docs/behaviour/upstream-tests.md#conntrack)."""

import itertools
from typing import Any

import pytest

from knft.families import Family
from knft.sync import flow_cleaner
from tests.support.conntrack_entries import Entry, client_endpoints
from tests.support.lab.plan import NODE, Version

TIMEOUT = 30.0
VERSIONS: tuple[Version, ...] = (4, 6)
VIPS = {
    4: ("10.96.0.10", "203.0.113.1", "203.0.113.2"),
    6: ("fd00:10:96::10", "2001:db8:cb::1", "2001:db8:cb::2"),
}
ENDPOINTS = {
    4: {"serving": "10.244.2.11", "not serving": "10.244.2.12", "deleted": "10.244.2.13"},
    6: {"serving": "fd00:10:244:2::11", "not serving": "fd00:10:244:2::12", "deleted": "fd00:10:244:2::13"},
}
FAMILIES: dict[Version, Family] = {4: Family.IPV4, 6: Family.IPV6}
PROTOCOLS = ("TCP", "UDP", "SCTP")
NODE_PORT = 32000
NETWORKS, OTHER_NETWORKS = ("192.0.2.0/24", "2001:db8:1::/64"), ("198.51.100.0/24", "2001:db8:9::/64")


def node_object() -> dict[str, Any]:
    """Return the Node."""
    addresses = [{"type": "InternalIP", "address": NODE.lan.of(version)} for version in VERSIONS]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}}


def service() -> dict[str, Any]:
    """Return a Service with a port in each protocol."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "all"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": VIPS[4][0],
            "clusterIPs": [VIPS[4][0], VIPS[6][0]],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": [VIPS[4][1], VIPS[6][1]],
            "ports": [
                {
                    "name": name.lower(),
                    "port": 8000,
                    "protocol": name,
                    **({"nodePort": NODE_PORT} if name == "UDP" else {}),
                }
                for name in PROTOCOLS
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": VIPS[4][2]}, {"ip": VIPS[6][2]}]}},
    }


def slice_of(version: Version, *, serving: bool = True) -> dict[str, Any]:
    """Return the Service's endpoints of one family: one that is serving (or not), and one that is not."""
    addresses = ENDPOINTS[version]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"all-{version}", "labels": {"kubernetes.io/service-name": "all"}},
        "addressType": FAMILIES[version].value,
        "ports": [{"name": name.lower(), "port": 8080, "protocol": name} for name in PROTOCOLS],
        "endpoints": [
            {"addresses": [addresses["serving"]], "conditions": {"ready": serving, "serving": serving}},
            {"addresses": [addresses["not serving"]], "conditions": {"ready": False, "serving": False}},
        ],
    }


def flows_of(version: Version) -> list[Entry]:
    """Return the 63 flows of kube-proxy's test to endpoints, and 6 without DNAT."""
    client, node = client_endpoints(version), NODE.lan.of(version)
    destinations = [(vip, port) for vip in VIPS[version] for port in (8000, 3000)]
    translated = [
        Entry(protocol, next(client), to, (endpoint, 8080))
        for protocol, to, endpoint in itertools.product(
            PROTOCOLS, [*destinations, (node, NODE_PORT)], ENDPOINTS[version].values()
        )
    ]
    return [*translated, *(Entry("UDP", next(client), to, to) for to in destinations)]


def is_stale(version: Version, entry: Entry) -> bool:
    """Return whether the cleaner must delete a flow while the Service is unchanged."""
    to_service = entry.original_destination[1] == 8000 or entry.original_destination == (
        NODE.lan.of(version),
        NODE_PORT,
    )
    return entry.protocol == "UDP" and to_service and entry.reply_source != (ENDPOINTS[version]["serving"], 8080)


def run_before_settling(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Run an action after the cleaner has listed the flows, before it decides which to delete."""
    wait_until_current = flow_cleaner.FlowCleaner._wait_until_current

    def run_first(cleaner: flow_cleaner.FlowCleaner, pending: flow_cleaner._FamilyState) -> bool:
        action()
        return wait_until_current(cleaner, pending)

    monkeypatch.setattr(flow_cleaner.FlowCleaner, "_wait_until_current", run_first)
