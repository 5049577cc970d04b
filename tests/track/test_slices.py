"""Expansion and cache of EndpointSlices (docs/behaviour/tracking.md#endpoint-slices)."""

import itertools
from typing import Any, NamedTuple

import pytest

from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName
from knft.model.objects import EndpointPort, EndpointSlice, SliceEndpoint
from knft.track.slices import EndpointsByPort, EndpointSliceCache, PortKey, expand_slice, merge
from tests.support.kube_objects import (
    NODE,
    OTHER_NODE,
    endpoint,
    endpoint_slice,
    parametrize_cases,
    slice_port,
    tracked_endpoint,
)

WEB = NamespacedName("default", "web")
HTTP = PortKey("http", "TCP")
ONE, TWO, THREE = (tracked_endpoint(f"10.244.0.{octet}") for octet in (1, 2, 3))


def _endpoints(*slices: EndpointSlice, node: str = NODE) -> EndpointsByPort:
    """Return the endpoints of a cache that contains only these slices."""
    cache = EndpointSliceCache(node)
    for item in slices:
        cache.update_pending(WEB, item, remove=False)
    return cache.drain()[WEB].current


class EndpointCase(NamedTuple):
    """An endpoint of a slice with port 8080, and the expanded endpoint, or None."""

    given: SliceEndpoint
    expected: Endpoint | None
    node: str = NODE


ENDPOINTS = {
    "no conditions": EndpointCase(SliceEndpoint(("10.244.0.1",)), ONE),
    "all conditions unknown": EndpointCase(
        endpoint("10.244.0.1"), tracked_endpoint("10.244.0.1", ready=True, serving=True)
    ),
    "all conditions true": EndpointCase(
        endpoint("10.244.0.1", ready=True, serving=True, terminating=True),
        tracked_endpoint("10.244.0.1", terminating=True),
    ),
    "all conditions false": EndpointCase(
        endpoint("10.244.0.1", ready=False, serving=False, terminating=False),
        tracked_endpoint("10.244.0.1", ready=False, serving=False),
    ),
    "terminating and serving": EndpointCase(
        endpoint("10.244.0.1", ready=False, serving=True, terminating=True),
        tracked_endpoint("10.244.0.1", ready=False, serving=True, terminating=True),
    ),
    "only ready is false": EndpointCase(
        endpoint("10.244.0.1", ready=False), tracked_endpoint("10.244.0.1", ready=False)
    ),
    "on this node": EndpointCase(endpoint("10.244.0.1", node=NODE), tracked_endpoint("10.244.0.1", is_local=True)),
    "on another node": EndpointCase(endpoint("10.244.0.1", node=OTHER_NODE), ONE),
    "without a node name": EndpointCase(endpoint("10.244.0.1"), ONE),
    "without a node name, and this node has none": EndpointCase(endpoint("10.244.0.1"), ONE, node=""),
    "empty node name, and this node has none": EndpointCase(endpoint("10.244.0.1", node=""), ONE, node=""),
    "zone hints": EndpointCase(
        endpoint("10.244.0.1", zones=("a", "b")), tracked_endpoint("10.244.0.1", zone_hints=frozenset({"a", "b"}))
    ),
    "node hints": EndpointCase(
        endpoint("10.244.0.1", nodes=(NODE, OTHER_NODE)),
        tracked_endpoint("10.244.0.1", node_hints=frozenset({NODE, OTHER_NODE})),
    ),
    "both hints": EndpointCase(
        endpoint("10.244.0.1", zones=("a",), nodes=(NODE,)),
        tracked_endpoint("10.244.0.1", zone_hints=frozenset({"a"}), node_hints=frozenset({NODE})),
    ),
    "empty hints": EndpointCase(endpoint("10.244.0.1", zones=(), nodes=()), ONE),
    "first address only": EndpointCase(endpoint("10.244.0.1", "10.244.0.2"), ONE),
    "no address": EndpointCase(endpoint(), None),
    "leading zeros": EndpointCase(endpoint("010.244.000.001"), ONE),
}


@parametrize_cases(ENDPOINTS)
def test_endpoint_is_expanded_from_its_slice(case: EndpointCase) -> None:
    expected: EndpointsByPort = {} if case.expected is None else {HTTP: (case.expected,)}
    assert expected == _endpoints(endpoint_slice("web-1", case.given), node=case.node)


def test_ipv6_endpoint_key_is_canonical_with_brackets() -> None:
    endpoints = _endpoints(endpoint_slice("web-1", "FD00:0244:0::0001", family="IPv6"))
    assert {HTTP: (Endpoint.at("fd00:244::1", 8080),)} == endpoints
    assert endpoints[HTTP][0].key == "[fd00:244::1]:8080"


class PortsCase(NamedTuple):
    """The ports of a slice with endpoint 10.244.0.1, and the expanded endpoints."""

    given: tuple[EndpointPort, ...] | None
    expected: EndpointsByPort


DNS, DNS_UDP = PortKey("dns", "TCP"), PortKey("dns", "UDP")
PORTS = {
    "one port": PortsCase((slice_port(),), {HTTP: (ONE,)}),
    "two ports": PortsCase(
        (slice_port(), slice_port("dns", 53)), {HTTP: (ONE,), DNS: (tracked_endpoint("10.244.0.1", 53),)}
    ),
    "two protocols under one name": PortsCase(
        (slice_port("dns", 53), slice_port("dns", 5353, "UDP")),
        {DNS: (tracked_endpoint("10.244.0.1", 53),), DNS_UDP: (tracked_endpoint("10.244.0.1", 5353),)},
    ),
    "two numbers under one name": PortsCase(
        (slice_port("http", 8080), slice_port("http", 8081)), {HTTP: (ONE, tracked_endpoint("10.244.0.1", 8081))}
    ),
    "unnamed port": PortsCase((slice_port(""),), {PortKey("", "TCP"): (ONE,)}),
    "null name": PortsCase((slice_port(None),), {}),
    "null name and a named port": PortsCase((slice_port(None), slice_port()), {HTTP: (ONE,)}),
    "null number": PortsCase((slice_port(port=None),), {}),
    "null number and a numbered port": PortsCase((slice_port("dns", None), slice_port()), {HTTP: (ONE,)}),
    "null protocol is TCP": PortsCase((slice_port(protocol=None),), {HTTP: (ONE,)}),
    "empty list": PortsCase((), {}),
    "null list": PortsCase(None, {}),
}


@parametrize_cases(PORTS)
def test_port_without_name_or_number_is_ignored(case: PortsCase) -> None:
    assert case.expected == _endpoints(endpoint_slice("web-1", "10.244.0.1", ports=case.given))


def test_slice_without_endpoints_has_no_ports() -> None:
    assert _endpoints(endpoint_slice("web-1")) == {}
    assert merge([expand_slice(endpoint_slice("web-1"), NODE)]) == {}


class MergeCase(NamedTuple):
    """Slices of one Service, and their merged endpoints, which do not depend on the order of arrival."""

    slices: tuple[EndpointSlice, ...]
    expected: EndpointsByPort


READY = endpoint("10.244.0.1", ready=True)
UNREADY = endpoint("10.244.0.1", ready=False)
TERMINATING = endpoint("10.244.0.1", ready=False, serving=True, terminating=True)
READY_TERMINATING = endpoint("10.244.0.1", ready=True, serving=True, terminating=True)
ONE_TERMINATING = tracked_endpoint("10.244.0.1", ready=False, terminating=True)
ONE_UNREADY = tracked_endpoint("10.244.0.1", ready=False)
MERGES = {
    "one slice, three endpoints, two ports": MergeCase(
        (endpoint_slice("a", "10.244.0.3", "10.244.0.1", "10.244.0.2", ports=(slice_port(), slice_port("dns", 53))),),
        {HTTP: (ONE, TWO, THREE), DNS: tuple(tracked_endpoint(f"10.244.0.{octet}", 53) for octet in (1, 2, 3))},
    ),
    "two slices, one port": MergeCase(
        (endpoint_slice("a", "10.244.0.3", "10.244.0.1"), endpoint_slice("b", "10.244.0.2")), {HTTP: (ONE, TWO, THREE)}
    ),
    "two slices, two ports": MergeCase(
        (endpoint_slice("a", "10.244.0.1"), endpoint_slice("b", "10.244.0.2", ports=(slice_port("dns", 8080),))),
        {HTTP: (ONE,), DNS: (TWO,)},
    ),
    "one port name, a different number in each slice": MergeCase(
        (endpoint_slice("a", "10.244.0.1"), endpoint_slice("b", "10.244.0.1", ports=(slice_port("http", 9090),))),
        {HTTP: (ONE, tracked_endpoint("10.244.0.1", 9090))},
    ),
    "one endpoint in two slices": MergeCase(
        (endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.2", "10.244.0.3")),
        {HTTP: (ONE, TWO, THREE)},
    ),
    "ready in the first slice, terminating in the second": MergeCase(
        (endpoint_slice("a", READY), endpoint_slice("b", TERMINATING)), {HTTP: (ONE,)}
    ),
    "terminating in the first slice, ready in the second": MergeCase(
        (endpoint_slice("a", TERMINATING), endpoint_slice("b", READY)), {HTTP: (ONE,)}
    ),
    "unready in the first slice, terminating in the second": MergeCase(
        (endpoint_slice("a", UNREADY), endpoint_slice("b", TERMINATING)), {HTTP: (ONE_UNREADY,)}
    ),
    "terminating in the first slice, unready in the second": MergeCase(
        (endpoint_slice("a", TERMINATING), endpoint_slice("b", UNREADY)), {HTTP: (ONE_UNREADY,)}
    ),
    "ready in the first slice, unready in the second: the second wins": MergeCase(
        (endpoint_slice("a", READY), endpoint_slice("b", UNREADY)), {HTTP: (ONE_UNREADY,)}
    ),
    "unready in the first slice, ready in the second: the second wins": MergeCase(
        (endpoint_slice("a", UNREADY), endpoint_slice("b", READY)), {HTTP: (ONE,)}
    ),
    "terminating in both slices": MergeCase(
        (endpoint_slice("a", TERMINATING), endpoint_slice("b", TERMINATING)), {HTTP: (ONE_TERMINATING,)}
    ),
    "ready in the second of three slices, otherwise terminating": MergeCase(
        (endpoint_slice("a", TERMINATING), endpoint_slice("b", READY), endpoint_slice("c", TERMINATING)), {HTTP: (ONE,)}
    ),
    "twice in one slice, ready last": MergeCase((endpoint_slice("a", TERMINATING, READY),), {HTTP: (ONE,)}),
    "twice in one slice, ready first": MergeCase((endpoint_slice("a", READY, TERMINATING),), {HTTP: (ONE,)}),
    "twice in one slice: the last one wins": MergeCase((endpoint_slice("a", READY, UNREADY),), {HTTP: (ONE_UNREADY,)}),
    "twice in one slice, the last one ready and terminating": MergeCase(
        (endpoint_slice("a", UNREADY, READY_TERMINATING),), {HTTP: (ONE_UNREADY,)}
    ),
    "all endpoints terminating": MergeCase(
        (endpoint_slice("a", TERMINATING, endpoint("10.244.0.2", ready=False, serving=False, terminating=True)),),
        {HTTP: (ONE_TERMINATING, tracked_endpoint("10.244.0.2", ready=False, serving=False, terminating=True))},
    ),
    "some endpoints terminating": MergeCase(
        (endpoint_slice("a", TERMINATING, "10.244.0.2"),), {HTTP: (ONE_TERMINATING, TWO)}
    ),
    "sorted as text, not as numbers": MergeCase(
        (endpoint_slice("a", "10.244.0.2", "10.244.0.10", "10.244.0.1"),),
        {HTTP: (tracked_endpoint("10.244.0.10"), ONE, TWO)},
    ),
}


@parametrize_cases(MERGES)
def test_slices_are_merged_in_any_order_of_arrival(case: MergeCase) -> None:
    results = [_endpoints(*order) for order in itertools.permutations(case.slices)]
    assert [case.expected] * len(results) == results


class UpdateCase(NamedTuple):
    """An applied slice, a pending update, another update, and whether that changes anything."""

    applied: EndpointSlice | None
    pending: tuple[EndpointSlice, bool] | None
    update: tuple[EndpointSlice, bool]
    is_change: bool


SLICE, OTHER = endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.1")
REORDERED = endpoint_slice("a", "10.244.0.2", "10.244.0.1")
UPDATES = {
    "first slice": UpdateCase(None, None, (SLICE, False), is_change=True),
    "equal to the applied slice": UpdateCase(SLICE, None, (SLICE, False), is_change=False),
    "equal to the pending slice": UpdateCase(None, (SLICE, False), (SLICE, False), is_change=False),
    "equal to the applied slice, nothing pending": UpdateCase(SLICE, None, (SLICE, False), is_change=False),
    "equal to the applied slice, another is pending": UpdateCase(
        SLICE, (REORDERED, False), (SLICE, False), is_change=True
    ),
    "different endpoint": UpdateCase(
        SLICE, None, (endpoint_slice("a", "10.244.0.1", "10.244.0.3"), False), is_change=True
    ),
    "endpoint removed": UpdateCase(SLICE, None, (endpoint_slice("a", "10.244.0.1"), False), is_change=True),
    "different order": UpdateCase(SLICE, None, (REORDERED, False), is_change=True),
    "different port": UpdateCase(
        SLICE,
        None,
        (endpoint_slice("a", "10.244.0.1", "10.244.0.2", ports=(slice_port(port=9090),)), False),
        is_change=True,
    ),
    "different trigger time": UpdateCase(
        SLICE, None, (endpoint_slice("a", "10.244.0.1", "10.244.0.2", trigger="x"), False), is_change=True
    ),
    "another slice": UpdateCase(SLICE, None, (OTHER, False), is_change=True),
    "removal from an empty cache": UpdateCase(None, None, (SLICE, True), is_change=False),
    "removal of an unknown slice": UpdateCase(SLICE, None, (OTHER, True), is_change=False),
    "removal of the applied slice": UpdateCase(SLICE, None, (SLICE, True), is_change=True),
    "removal of the pending slice": UpdateCase(None, (SLICE, False), (SLICE, True), is_change=True),
    "second removal": UpdateCase(SLICE, (SLICE, True), (SLICE, True), is_change=False),
    "addition after a removal": UpdateCase(SLICE, (SLICE, True), (SLICE, False), is_change=True),
}


@parametrize_cases(UPDATES)
def test_update_is_compared_with_pending_or_applied_slice(case: UpdateCase) -> None:
    cache = EndpointSliceCache(NODE)
    if case.applied is not None:
        cache.update_pending(WEB, case.applied, remove=False)
        cache.drain()
    if case.pending is not None:
        cache.update_pending(WEB, case.pending[0], remove=case.pending[1])
    assert case.is_change == cache.update_pending(WEB, case.update[0], remove=case.update[1])


class DrainCase(NamedTuple):
    """Applied slices, updates, and the endpoints of port http before and after; None if the Service is unchanged."""

    applied: tuple[EndpointSlice, ...]
    updates: tuple[tuple[EndpointSlice, bool], ...]
    expected: tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]] | None


DRAINS = {
    "empty cache": DrainCase((), (), None),
    "no update": DrainCase((SLICE,), (), None),
    "slice added": DrainCase((), ((SLICE, False),), ((), (ONE, TWO))),
    "second slice added": DrainCase((OTHER,), ((SLICE, False),), ((ONE,), (ONE, TWO))),
    "slice updated": DrainCase((SLICE,), ((endpoint_slice("a", "10.244.0.3"), False),), ((ONE, TWO), (THREE,))),
    "slice removed": DrainCase((SLICE,), ((SLICE, True),), ((ONE, TWO), ())),
    "one of two slices removed": DrainCase((SLICE, OTHER), ((SLICE, True),), ((ONE, TWO), (ONE,))),
    "one slice updated, one removed": DrainCase(
        (SLICE, OTHER), ((endpoint_slice("b", "10.244.0.3"), False), (SLICE, True)), ((ONE, TWO), (THREE,))
    ),
    "all endpoints removed": DrainCase((SLICE,), ((endpoint_slice("a"), False),), ((ONE, TWO), ())),
    "two updates of one slice": DrainCase(
        (SLICE,), ((endpoint_slice("a", "10.244.0.3"), False), (endpoint_slice("a", "10.244.0.1"), False)),
        ((ONE, TWO), (ONE,)),
    ),
    "endpoints reordered": DrainCase((SLICE,), ((REORDERED, False),), ((ONE, TWO), (ONE, TWO))),
    "added and removed": DrainCase((), ((SLICE, False), (SLICE, True)), ((), ())),
    "removed and added": DrainCase((SLICE,), ((SLICE, True), (SLICE, False)), ((ONE, TWO), (ONE, TWO))),
    "removal of an unknown slice": DrainCase((SLICE,), ((OTHER, True),), None),
}  # fmt: skip


@parametrize_cases(DRAINS)
def test_drain_returns_each_changed_service_before_and_after(case: DrainCase) -> None:
    cache = EndpointSliceCache(NODE)
    for applied in case.applied:
        cache.update_pending(WEB, applied, remove=False)
    cache.drain()
    for update, remove in case.updates:
        cache.update_pending(WEB, update, remove=remove)
    changes = cache.drain()
    drained = {
        service: (change.previous.get(HTTP, ()), change.current.get(HTTP, ())) for service, change in changes.items()
    }
    assert ({} if case.expected is None else {WEB: case.expected}) == drained
    assert cache.drain() == {}


def test_services_are_drained_independently() -> None:
    cache, api = EndpointSliceCache(NODE), NamespacedName("default", "api")
    cache.update_pending(WEB, SLICE, remove=False)
    cache.update_pending(api, OTHER, remove=False)
    assert {WEB, api} == cache.drain().keys()
    cache.update_pending(api, OTHER, remove=True)
    assert {api} == cache.drain().keys()


@pytest.mark.parametrize("is_added_again", [False, True], ids=["removed", "added again"])
def test_service_without_slices_is_removed_from_the_cache(*, is_added_again: bool) -> None:
    cache = EndpointSliceCache(NODE)
    changes: list[Any] = []
    for remove in (False, True, *([False] if is_added_again else [])):
        changes.append(cache.update_pending(WEB, SLICE, remove=remove))
        cache.drain()
    assert all(changes)
    assert (WEB in cache._services) is is_added_again
