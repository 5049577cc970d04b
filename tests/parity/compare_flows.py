"""Compares the UDP conntrack entries that the proxies delete; equal ones are created on all nodes before a change."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.parity.marker import Marker
from tests.parity.nodes import Nodes, ParityNode
from tests.parity.random_cluster import (
    Cluster,
    Service,
    Settings,
    cluster_ip,
    external_addresses,
    host_addresses,
    ingress_addresses,
    is_proxied,
    node_port_of,
    port_numbers,
    slices_of,
)
from tests.support.conntrack_entries import Entry
from tests.support.lab import plan
from tests.support.waiting import wait_until

_FIRST_CLIENT_PORT = 10000
_TIMEOUT = 10.0
"""Seconds to wait until all nodes have deleted the same entries: knft deletes entries without a reply after 1 s."""
SCALED_TO_ZERO = "a Service scaled to zero: knft deletes its entries, kube-proxy 1.36 keeps them"
"""The only exception (docs/behaviour/conntrack.md#stale-udp-entries)."""


class _Flow(NamedTuple):
    """The origin of an entry: a Service's number and port name, a frontend, and an endpoint."""

    service: int
    port: str
    frontend: tuple[str, int]
    endpoint: tuple[str, int]


def _flows(cluster: Cluster, settings: Settings) -> dict[Entry, _Flow]:
    """Return one entry for each UDP frontend and serving endpoint, each from another client port."""
    found: dict[Entry, _Flow] = {}
    for service in cluster.services:
        for flow in _flows_of(service, settings) if is_proxied(service) else ():
            client = plan.OUTSIDE.of(_version(flow.frontend)), _FIRST_CLIENT_PORT + len(found)
            found[Entry("UDP", client, flow.frontend, flow.endpoint)] = flow
    return found


def _flows_of(service: Service, settings: Settings) -> Iterator[_Flow]:
    for name, frontend in _frontends(service, settings):
        endpoints = set[tuple[str, int]]().union(*_serving(service, name, _version(frontend)).values())
        yield from (_Flow(service.number, name, frontend, endpoint) for endpoint in sorted(endpoints))


def _frontends(service: Service, settings: Settings) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the name of each UDP port and each of its frontends."""
    addresses = [cluster_ip(service, family) for family in service.families]
    if service.has_external_ips:
        addresses += external_addresses(service)
    if service.type == "LoadBalancer" and service.ingress == "VIP":
        addresses += ingress_addresses(service)
    own = plan.NODE.gateway if settings.node_port_addresses.startswith("10.") else plan.NODE.lan
    for name, protocol, port in port_numbers(service):
        if protocol == "UDP":
            yield from ((name, (address, port)) for address in addresses)
            if node_port := node_port_of(service, name):
                yield from ((name, (address, node_port)) for address in (own.ipv4, own.ipv6))


def _serving(service: Service, port: str, version: plan.Version) -> dict[int, set[tuple[str, int]]]:
    """Return the serving endpoints of a port in each slice of a family."""
    return {
        number: {(host_addresses(item.host).of(version), one.target) for item in one.endpoints if item.serving}
        for number, one in enumerate(slices_of(service))
        if one.family == f"IPv{version}" and one.family in service.families and port in one.ports
    }


def _version(frontend: tuple[str, int]) -> plan.Version:
    return 6 if ":" in frontend[0] else 4


class FlowComparison:
    """The entries of one change: ``add`` before it, ``differences`` after it."""

    def __init__(self, nodes: Nodes, marker: Marker, before: Cluster, settings: Settings) -> None:
        """Create the entries of the cluster before the change, and those that the marker makes stale."""
        self._nodes = nodes
        self._settings = settings
        self._before = before
        self._added = _flows(before, settings)
        self.count = len(self._added)
        self._stale = marker.stale_entries
        for node in nodes:
            node.add_entries([*self._added, *self._stale])

    def differences(self, after: Cluster) -> list[str]:
        """Wait until the marker's entries are deleted everywhere; return the entries that differ for some seconds."""
        for node in self._nodes:
            message = f"{node.name} does not delete the marker's UDP entries"
            wait_until(lambda node=node: self._is_cleaned(node), message, self._nodes.check, interval=0.05)  # type: ignore[misc]
        compared = self._compared(after)
        try:
            wait_until(lambda: not self._different(compared), "", timeout=_TIMEOUT, interval=0.1)
        except AssertionError:
            return self._different(compared)
        return []

    def _is_cleaned(self, node: ParityNode) -> bool:
        return not set(self._stale) & node.entries()

    def _compared(self, after: Cluster) -> frozenset[Entry]:
        """Return the entries that do not depend on the order in which the objects of a change arrive."""
        services = {service.number: service for service in after.services if is_proxied(service)}
        return frozenset(
            entry
            for entry, flow in self._added.items()
            if flow.service in services and self._is_compared(flow, services[flow.service])
        )

    def _is_compared(self, flow: _Flow, after: Service) -> bool:
        """Tell whether the frontend stays and has endpoints (see SCALED_TO_ZERO), and the endpoint's slice is clear."""
        version = _version(flow.frontend)
        before = next(service for service in self._before.services if service.number == flow.service)
        old, new = (_serving(service, flow.port, version) for service in (before, after))
        stays = any(flow.endpoint in old.get(number, ()) for number, found in new.items() if flow.endpoint in found)
        is_gone = not any(flow.endpoint in found for found in new.values())
        has_frontend = (flow.port, flow.frontend) in set(_frontends(after, self._settings))
        return has_frontend and any(new.values()) and (stays or is_gone)

    def _different(self, compared: frozenset[Entry]) -> list[str]:
        kept = {node.name: compared & node.entries() for node in self._nodes}
        ours = kept.pop("knft")
        return [
            f"{name} {'keeps' if entry in theirs else 'deletes'} {_text(entry)}, knft does not"
            for name, theirs in kept.items()
            for entry in sorted(theirs ^ ours)
        ]


def _text(entry: Entry) -> str:
    return f"the UDP entry to {entry.original_destination} of endpoint {entry.reply_source}"
