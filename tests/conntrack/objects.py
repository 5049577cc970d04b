"""One node and one Service in all protocols, and flows to it (K.4)."""

import itertools
from typing import Any

import pytest

from knft.model.names import Family
from knft.sync import conntrack
from tests.conntrack.entries import Entry, clients
from tests.support.lab.plan import NODE, Version

HANG = 30.0
BOTH: tuple[Version, ...] = (4, 6)
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
    """Return the node."""
    addresses = [{"type": "InternalIP", "address": NODE.lan.of(version)} for version in BOTH]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}}


def service() -> dict[str, Any]:
    """Return a Service in all protocols."""
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
    """Return that Service's endpoints of one family: one that serves, or does not, and one that does not."""
    found = ENDPOINTS[version]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"all-{version}", "labels": {"kubernetes.io/service-name": "all"}},
        "addressType": FAMILIES[version].value,
        "ports": [{"name": name.lower(), "port": 8080, "protocol": name} for name in PROTOCOLS],
        "endpoints": [
            {"addresses": [found["serving"]], "conditions": {"ready": serving, "serving": serving}},
            {"addresses": [found["not serving"]], "conditions": {"ready": False, "serving": False}},
        ],
    }


def flows_of(version: Version) -> list[Entry]:
    """Return K.4's 63 flows to endpoints, and 6 that were never translated."""
    client, node = clients(version), NODE.lan.of(version)
    dialled = [(vip, port) for vip in VIPS[version] for port in (8000, 3000)]
    translated = [
        Entry(protocol, next(client), to, (endpoint, 8080))
        for protocol, to, endpoint in itertools.product(
            PROTOCOLS, [*dialled, (node, NODE_PORT)], ENDPOINTS[version].values()
        )
    ]
    return [*translated, *(Entry("UDP", next(client), to, to) for to in dialled)]


def is_stale(version: Version, entry: Entry) -> bool:
    """Tell whether a flow is to be forgotten while the Service is as it was made."""
    ours = entry.dialled[1] == 8000 or entry.dialled == (NODE.lan.of(version), NODE_PORT)
    return entry.protocol == "UDP" and ours and entry.answering != (ENDPOINTS[version]["serving"], 8080)


def meddle(monkeypatch: pytest.MonkeyPatch, between: Any) -> None:
    """Have something happen after flows were listed, and before it is settled which are forgotten."""
    settled = conntrack.FlowCleaner._is_settled

    def first(cleaner: conntrack.FlowCleaner, heard: conntrack._Heard) -> bool:
        between()
        return settled(cleaner, heard)

    monkeypatch.setattr(conntrack.FlowCleaner, "_is_settled", first)
