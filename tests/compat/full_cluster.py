"""A cluster with Services of every kind in both families, as manifests, for tests of the legacy modes."""

from typing import Any

from tests.compat.iptables_render import Manifest, endpoints, service

FLAGS = ("--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--node-ip", "192.0.2.11,2001:db8:1::11")
STICKY: Manifest = {"sessionAffinity": "ClientIP"}
RANGES = ["192.0.2.0/24", "198.18.0.0/15", "0.0.0.0/0", "2001:db8::/32", "fd00:99::/64"]
LONGEST = f"{'n' * 63}/{'s' * 253}"
"""The longest valid namespace and name; a comment with them is longer than iptables allows."""


class _Numbers:
    """Generates unused numbers for addresses and ports."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


def full_cluster() -> list[Manifest]:
    """Return Services of every kind, with endpoints in both families."""
    numbers = _Numbers()
    objects: list[Manifest] = []
    everywhere = ("remote", "remote", "local")
    kinds: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "plain": ({}, everywhere),
        "single": ({}, ("remote",)),
        "closed": ({}, ()),
        "sticky": (STICKY, everywhere),
        "local": ({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}, everywhere),
        "local-elsewhere": ({"externalTrafficPolicy": "Local"}, ("remote",)),
        "inside": ({"internalTrafficPolicy": "Local"}, everywhere),
        "inside-elsewhere": ({"internalTrafficPolicy": "Local"}, ("remote",)),
        "both-local": ({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local", **STICKY}, everywhere),
        "ranges": ({"loadBalancerSourceRanges": RANGES}, everywhere),
        "closed-ranges": ({"loadBalancerSourceRanges": RANGES}, ()),
        "ending": ({"externalTrafficPolicy": "Local"}, ("terminating", "remote")),
    }
    for name, (spec, places) in kinds.items():
        for protocol in ("TCP", "UDP", "SCTP"):
            objects += _dual(f"shop/{name}-{protocol.lower()}", numbers.next(), protocol, spec, places)
    return objects + _dual(LONGEST, numbers.next(), "TCP", STICKY, everywhere, port_name="p" * 63)


def changed_cluster() -> list[Manifest]:
    """Return the cluster after changes: a deleted Service, a changed traffic policy, a removed endpoint."""
    objects = [item for item in full_cluster() if not item["metadata"]["name"].startswith("ranges-tcp")]
    for item in objects:
        name = item["metadata"]["name"]
        if name == "local-udp":
            item["spec"]["externalTrafficPolicy"] = "Cluster"
        elif name.startswith("plain-tcp-"):
            del item["endpoints"][0]
    return objects


def _dual(
    name: str,
    number: int,
    protocol: str,
    spec: dict[str, Any],
    endpoint_nodes: tuple[str, ...],
    *,
    port_name: str = "http",
) -> list[Manifest]:
    """Return a dual-stack Service with every kind of frontend, and endpoints that are remote, local or terminating."""
    addresses = [f"10.96.0.{number}", f"fd00:10:96::{number:x}"]
    port = {"name": port_name, "protocol": protocol}
    item = service(
        name,
        vips=(f"203.0.113.{number}", f"2001:db8:2::{number:x}"),
        port={**port, "nodePort": 30000 + number},
        clusterIP=addresses[0],
        clusterIPs=addresses,
        ipFamilies=["IPv4", "IPv6"],
        externalIPs=[f"198.51.100.{number}", f"2001:db8:3::{number:x}"],
        **spec,
    )
    flags = {"remote": "", "local": "L", "terminating": "LT"}
    placed = [(flags[place], position) for position, place in enumerate(endpoint_nodes, 1)]
    slices = [
        endpoints(name, *(f"{flag}10.244.{number}.{position}" for flag, position in placed), port=port),
        endpoints(name, *(f"{flag}fd00:10:244:{number:x}::{position:x}" for flag, position in placed), port=port),
    ]
    return [item, *slices[: 2 if endpoint_nodes else 1]]
