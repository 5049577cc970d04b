"""Compares the UDP conntrack entries that the proxies delete; equal ones are created on all nodes before a change.

``predicted`` tells from the objects before and after the change what kube-proxy and knft do with an entry: both follow
the same rule, except in the cases of ``exceptions.CONNTRACK``.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tests.parity.exceptions import (
    EVENT_ORDER,
    OTHER_HOST,
    SCALED_TO_ZERO,
    SERVICE_REMOVED,
    ConntrackException,
    ExceptionUses,
    Fate,
)
from tests.parity.marker import Marker
from tests.parity.nodes import KnftNode, Nodes, ParityNode
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
from tests.support.lab.links import flush_conntrack
from tests.support.waiting import wait_until

_FIRST_CLIENT_PORT = 10000
_TIMEOUT = 10.0
"""Seconds to wait until all nodes have deleted the entries: knft deletes entries without a reply after 1 s."""
_KEEPS: Fate = "keeps"
_DELETES: Fate = "deletes"
_EITHER: Fate = "keeps or deletes"
Address = tuple[str, int]
Slices = dict[int, set[Address]]
"""The serving endpoints of a Service port in each slice of a family."""


class Flow(NamedTuple):
    """The origin of an entry: a Service's number and port name, a frontend, and an endpoint.

    If ``is_to_other_host``, the frontend and the endpoint are one address of another host, with a NodePort's number.
    """

    service: int
    port: str
    frontend: Address
    endpoint: Address
    is_to_other_host: bool = False


class Prediction(NamedTuple):
    """What kube-proxy and knft do with an entry, and the exception that explains a difference."""

    kube_proxy: Fate
    knft: Fate
    exception: ConntrackException | None = None


def flows_of(cluster: Cluster, settings: Settings) -> dict[Entry, Flow]:
    """Return one entry for each UDP frontend and serving endpoint, each from another client port."""
    found: dict[Entry, Flow] = {}
    for service in cluster.services:
        for flow in _flows_of(service, settings) if is_proxied(service) else ():
            client = plan.OUTSIDE.of(_version(flow.frontend)), _FIRST_CLIENT_PORT + len(found)
            found[Entry("UDP", client, flow.frontend, flow.endpoint)] = flow
    return found


def _flows_of(service: Service, settings: Settings) -> Iterator[Flow]:
    for name, frontend in _frontends(service, settings):
        endpoints = set[Address]().union(*_serving(service, name, _version(frontend)).values())
        yield from (Flow(service.number, name, frontend, endpoint) for endpoint in sorted(endpoints))
    for name, protocol, _ in port_numbers(service):
        node_port = node_port_of(service, name)
        if protocol == "UDP" and node_port:
            for family in service.families:
                other = plan.REMOTE.lan.of(6 if family == "IPv6" else 4), node_port
                yield Flow(service.number, name, other, other, is_to_other_host=True)


def _frontends(service: Service, settings: Settings) -> Iterator[tuple[str, Address]]:
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


def _serving(service: Service, port: str, version: plan.Version) -> Slices:
    """Return the serving endpoints of a port in each slice of a family."""
    return {
        number: {(host_addresses(item.host).of(version), one.target) for item in one.endpoints if item.serving}
        for number, one in enumerate(slices_of(service))
        if one.family == f"IPv{version}" and one.family in service.families and port in one.ports
    }


def _version(frontend: Address) -> plan.Version:
    return 6 if ":" in frontend[0] else 4


def predicted(flow: Flow, before: Service, after: Service | None, settings: Settings) -> Prediction:
    """Return what the proxies do with an entry when its Service changes; ``after`` is None if it is deleted."""
    now = after if after is not None and is_proxied(after) else None
    version = _version(flow.frontend)
    old, new = (_serving(one, flow.port, version) if one else {} for one in (before, after))
    if now is None or flow.port not in now.ports or f"IPv{version}" not in now.families:
        return _of_other_host(old, {}) if flow.is_to_other_host else _removed(flow, old, new, SERVICE_REMOVED)
    final = set[Address]().union(*new.values())
    if flow.is_to_other_host:
        return _of_other_host(old, new if node_port_of(now, flow.port) == flow.frontend[1] else {})
    if flow.endpoint not in final and (flow.port, flow.frontend) in set(_frontends(now, settings)):
        return Prediction(_DELETES, _DELETES) if final else _removed(flow, old, new, SCALED_TO_ZERO)
    # If the families change, the API server has to delete and create the Service.
    is_recreated = now.families != before.families
    kube_proxy = _EITHER if _may_be_stale(flow.endpoint, old, new) else _KEEPS
    knft = _EITHER if is_recreated or _may_leave(flow.endpoint, old, new) else _KEEPS
    return Prediction(kube_proxy, knft, EVENT_ORDER if _EITHER in (kube_proxy, knft) else None)


def _removed(flow: Flow, old: Slices, new: Slices, exception: ConntrackException) -> Prediction:
    """Return the prediction for a Service port that has no endpoints any more, or is gone."""
    if _may_be_stale(flow.endpoint, old, new):
        return Prediction(_EITHER, _DELETES, EVENT_ORDER)
    return Prediction(exception.kube_proxy, exception.knft, exception)


def _of_other_host(old: Slices, new: Slices) -> Prediction:
    """Return the prediction for an entry to another host; ``new`` has the endpoints if the NodePort stays."""
    if any(new.values()):
        return Prediction(OTHER_HOST.kube_proxy, OTHER_HOST.knft, OTHER_HOST)
    return Prediction(_EITHER, _KEEPS, EVENT_ORDER) if any(old.values()) else Prediction(_KEEPS, _KEEPS)


def _may_leave(endpoint: Address, old: Slices, new: Slices) -> bool:
    """Tell whether the Service port may lack the endpoint at some time: slices change one after the other."""
    return not any(endpoint in found and endpoint in new.get(number, ()) for number, found in old.items())


def _may_be_stale(endpoint: Address, old: Slices, new: Slices) -> bool:
    """Tell whether the Service port may lack the endpoint at a time when it has others."""
    if not _may_leave(endpoint, old, new):
        return False
    versions = (side.get(number, set()) for number in old.keys() | new for side in (old, new))
    return any(found and endpoint not in found for found in versions)


class FlowComparison:
    """The entries of one change: created before it; ``differences`` after it."""

    def __init__(self, nodes: Nodes, marker: Marker, before: Cluster, settings: Settings, uses: ExceptionUses) -> None:
        """Create the entries of the cluster before the change, and those that the marker makes stale."""
        self._nodes = nodes
        self._settings = settings
        self._before = before
        self._uses = uses
        self._added = flows_of(before, settings)
        self.count = len(self._added)
        self._stale = marker.stale_entries
        for node in nodes:
            flush_conntrack(node.namespace)
            node.add_entries([*self._added, *self._stale])

    def differences(self, after: Cluster) -> list[str]:
        """Wait until the marker's entries are deleted everywhere; return the entries that differ for some seconds."""
        for node in self._nodes:
            message = f"{node.name} does not delete the marker's UDP entries"
            wait_until(partial(self._is_cleaned, node), message, self._nodes.check, interval=0.05)
        predictions = self._predictions(after)
        for prediction in predictions.values():
            if prediction.exception is not None:
                self._uses.count_entry(prediction.exception)
        try:
            wait_until(lambda: not self._different(predictions), "", timeout=_TIMEOUT, interval=0.1)
        except AssertionError:
            return self._different(predictions)
        return []

    def _is_cleaned(self, node: ParityNode) -> bool:
        return not set(self._stale) & node.entries()

    def _predictions(self, after: Cluster) -> dict[Entry, Prediction]:
        old, new = ({service.number: service for service in one.services} for one in (self._before, after))
        return {
            entry: predicted(flow, old[flow.service], new.get(flow.service), self._settings)
            for entry, flow in self._added.items()
        }

    def _different(self, predictions: dict[Entry, Prediction]) -> list[str]:
        found: list[str] = []
        for node in self._nodes:
            kept = node.entries()
            for entry, prediction in sorted(predictions.items()):
                fate = _KEEPS if entry in kept else _DELETES
                expected = prediction.knft if isinstance(node, KnftNode) else prediction.kube_proxy
                if expected not in (fate, _EITHER):
                    found.append(f"{node.name} {fate} {_text(entry)}{_because(prediction)}")
        return found


def _because(prediction: Prediction) -> str:
    if prediction.exception is None:
        return ""
    _, kube_proxy, knft, _ = prediction.exception
    return f", but for an entry {prediction.exception.entries} kube-proxy {kube_proxy} and knft {knft} it"


def _text(entry: Entry) -> str:
    return f"the UDP entry to {entry.original_destination} of endpoint {entry.reply_source}"
