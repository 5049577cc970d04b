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
    parametrize_rows,
    slice_port,
    tracked_endpoint,
)

WEB = NamespacedName("default", "web")
HTTP = PortKey("http", "TCP")
ONE, TWO, THREE = (tracked_endpoint(f"10.244.0.{octet}") for octet in (1, 2, 3))


def _endpoints(*slices: EndpointSlice, node: str = NODE) -> EndpointsByPort:
    """Return what a cache that has these slices, and no others, gives out."""
    cache = EndpointSliceCache(node)
    for found in slices:
        cache.update_pending(WEB, found, remove=False)
    return cache.drain()[WEB].current


class One(NamedTuple):
    """One endpoint of a slice on port 8080, and what comes of it; None: nothing."""

    given: SliceEndpoint
    expected: Endpoint | None
    node: str = NODE


ENDPOINTS = {
    "no conditions": One(SliceEndpoint(("10.244.0.1",)), ONE),
    "conditions left open": One(endpoint("10.244.0.1"), tracked_endpoint("10.244.0.1", ready=True, serving=True)),
    "all conditions true": One(
        endpoint("10.244.0.1", ready=True, serving=True, terminating=True),
        tracked_endpoint("10.244.0.1", terminating=True),
    ),
    "all conditions false": One(
        endpoint("10.244.0.1", ready=False, serving=False, terminating=False),
        tracked_endpoint("10.244.0.1", ready=False, serving=False),
    ),
    "terminating and serving": One(
        endpoint("10.244.0.1", ready=False, serving=True, terminating=True),
        tracked_endpoint("10.244.0.1", ready=False, serving=True, terminating=True),
    ),
    "only ready is false": One(endpoint("10.244.0.1", ready=False), tracked_endpoint("10.244.0.1", ready=False)),
    "on this node": One(endpoint("10.244.0.1", node=NODE), tracked_endpoint("10.244.0.1", is_local=True)),
    "on another node": One(endpoint("10.244.0.1", node=OTHER_NODE), ONE),
    "on no node": One(endpoint("10.244.0.1"), ONE),
    "on no node, this one has no name": One(endpoint("10.244.0.1"), ONE, node=""),
    "its node's name is empty, and this one's too": One(endpoint("10.244.0.1", node=""), ONE, node=""),
    "zone hints": One(
        endpoint("10.244.0.1", zones=("a", "b")), tracked_endpoint("10.244.0.1", zone_hints=frozenset({"a", "b"}))
    ),
    "node hints": One(
        endpoint("10.244.0.1", nodes=(NODE, OTHER_NODE)),
        tracked_endpoint("10.244.0.1", node_hints=frozenset({NODE, OTHER_NODE})),
    ),
    "both hints": One(
        endpoint("10.244.0.1", zones=("a",), nodes=(NODE,)),
        tracked_endpoint("10.244.0.1", zone_hints=frozenset({"a"}), node_hints=frozenset({NODE})),
    ),
    "empty hints": One(endpoint("10.244.0.1", zones=(), nodes=()), ONE),
    "first address only": One(endpoint("10.244.0.1", "10.244.0.2"), ONE),
    "no address": One(endpoint(), None),
    "leading zeros": One(endpoint("010.244.000.001"), ONE),
}


@parametrize_rows(ENDPOINTS)
def test_endpoint_is_expanded_from_its_slice(row: One) -> None:
    expected: EndpointsByPort = {} if row.expected is None else {HTTP: (row.expected,)}
    assert expected == _endpoints(endpoint_slice("web-1", row.given), node=row.node)


def test_ipv6_endpoint_key_is_canonical_with_brackets() -> None:
    found = _endpoints(endpoint_slice("web-1", "FD00:0244:0::0001", family="IPv6"))
    assert {HTTP: (Endpoint("fd00:244::1", 8080, "[fd00:244::1]:8080"),)} == found


class Ports(NamedTuple):
    """The ports of a slice with the endpoint 10.244.0.1, and what comes of them."""

    given: tuple[EndpointPort, ...] | None
    expected: EndpointsByPort


DNS, DNS_UDP = PortKey("dns", "TCP"), PortKey("dns", "UDP")
PORTS = {
    "one": Ports((slice_port(),), {HTTP: (ONE,)}),
    "two": Ports((slice_port(), slice_port("dns", 53)), {HTTP: (ONE,), DNS: (tracked_endpoint("10.244.0.1", 53),)}),
    "two protocols of one name": Ports(
        (slice_port("dns", 53), slice_port("dns", 5353, "UDP")),
        {DNS: (tracked_endpoint("10.244.0.1", 53),), DNS_UDP: (tracked_endpoint("10.244.0.1", 5353),)},
    ),
    "two numbers of one name": Ports(
        (slice_port("http", 8080), slice_port("http", 8081)), {HTTP: (ONE, tracked_endpoint("10.244.0.1", 8081))}
    ),
    "unnamed": Ports((slice_port(""),), {PortKey("", "TCP"): (ONE,)}),
    "name null": Ports((slice_port(None),), {}),
    "name null beside another": Ports((slice_port(None), slice_port()), {HTTP: (ONE,)}),
    "number null": Ports((slice_port(port=None),), {}),
    "number null beside another": Ports((slice_port("dns", None), slice_port()), {HTTP: (ONE,)}),
    "protocol left out is TCP": Ports((slice_port(protocol=None),), {HTTP: (ONE,)}),
    "none": Ports((), {}),
    "list left out": Ports(None, {}),
}


@parametrize_rows(PORTS)
def test_port_without_name_or_number_is_ignored(row: Ports) -> None:
    assert row.expected == _endpoints(endpoint_slice("web-1", "10.244.0.1", ports=row.given))


def test_slice_without_endpoints_has_no_ports() -> None:
    assert _endpoints(endpoint_slice("web-1")) == {}
    assert merge([expand_slice(endpoint_slice("web-1"), NODE)]) == {}


class Several(NamedTuple):
    """Slices of one Service, and what comes of them whatever order they arrive in."""

    slices: tuple[EndpointSlice, ...]
    expected: EndpointsByPort


READY = endpoint("10.244.0.1", ready=True)
UNREADY = endpoint("10.244.0.1", ready=False)
GOING = endpoint("10.244.0.1", ready=False, serving=True, terminating=True)
GOING_READY = endpoint("10.244.0.1", ready=True, serving=True, terminating=True)
ONE_GOING = tracked_endpoint("10.244.0.1", ready=False, terminating=True)
ONE_UNREADY = tracked_endpoint("10.244.0.1", ready=False)
SEVERAL = {
    "one slice, three endpoints, two ports": Several(
        (endpoint_slice("a", "10.244.0.3", "10.244.0.1", "10.244.0.2", ports=(slice_port(), slice_port("dns", 53))),),
        {HTTP: (ONE, TWO, THREE), DNS: tuple(tracked_endpoint(f"10.244.0.{octet}", 53) for octet in (1, 2, 3))},
    ),
    "two slices, one port": Several(
        (endpoint_slice("a", "10.244.0.3", "10.244.0.1"), endpoint_slice("b", "10.244.0.2")), {HTTP: (ONE, TWO, THREE)}
    ),
    "two slices, two ports": Several(
        (endpoint_slice("a", "10.244.0.1"), endpoint_slice("b", "10.244.0.2", ports=(slice_port("dns", 8080),))),
        {HTTP: (ONE,), DNS: (TWO,)},
    ),
    "one name, another number in each": Several(
        (endpoint_slice("a", "10.244.0.1"), endpoint_slice("b", "10.244.0.1", ports=(slice_port("http", 9090),))),
        {HTTP: (ONE, tracked_endpoint("10.244.0.1", 9090))},
    ),
    "overlapping": Several(
        (endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.2", "10.244.0.3")),
        {HTTP: (ONE, TWO, THREE)},
    ),
    "ready before, terminating after": Several(
        (endpoint_slice("a", READY), endpoint_slice("b", GOING)), {HTTP: (ONE,)}
    ),
    "terminating before, ready after": Several(
        (endpoint_slice("a", GOING), endpoint_slice("b", READY)), {HTTP: (ONE,)}
    ),
    "unready before, terminating after": Several(
        (endpoint_slice("a", UNREADY), endpoint_slice("b", GOING)), {HTTP: (ONE_UNREADY,)}
    ),
    "terminating before, unready after": Several(
        (endpoint_slice("a", GOING), endpoint_slice("b", UNREADY)), {HTTP: (ONE_UNREADY,)}
    ),
    "ready in one, unready in the other: the one whose slice's name is later": Several(
        (endpoint_slice("a", READY), endpoint_slice("b", UNREADY)), {HTTP: (ONE_UNREADY,)}
    ),
    "unready in one, ready in the other: the one whose slice's name is later": Several(
        (endpoint_slice("a", UNREADY), endpoint_slice("b", READY)), {HTTP: (ONE,)}
    ),
    "terminating in both": Several((endpoint_slice("a", GOING), endpoint_slice("b", GOING)), {HTTP: (ONE_GOING,)}),
    "ready in the middle of two terminating": Several(
        (endpoint_slice("a", GOING), endpoint_slice("b", READY), endpoint_slice("c", GOING)), {HTTP: (ONE,)}
    ),
    "twice in one slice, ready last": Several((endpoint_slice("a", GOING, READY),), {HTTP: (ONE,)}),
    "twice in one slice, ready first": Several((endpoint_slice("a", READY, GOING),), {HTTP: (ONE,)}),
    "twice in one slice, the later one stays": Several((endpoint_slice("a", READY, UNREADY),), {HTTP: (ONE_UNREADY,)}),
    "twice in one slice, terminating though ready": Several(
        (endpoint_slice("a", UNREADY, GOING_READY),), {HTTP: (ONE_UNREADY,)}
    ),
    "all terminating": Several(
        (endpoint_slice("a", GOING, endpoint("10.244.0.2", ready=False, serving=False, terminating=True)),),
        {HTTP: (ONE_GOING, tracked_endpoint("10.244.0.2", ready=False, serving=False, terminating=True))},
    ),
    "some terminating": Several((endpoint_slice("a", GOING, "10.244.0.2"),), {HTTP: (ONE_GOING, TWO)}),
    "sorted as texts and not as numbers": Several(
        (endpoint_slice("a", "10.244.0.2", "10.244.0.10", "10.244.0.1"),),
        {HTTP: (tracked_endpoint("10.244.0.10"), ONE, TWO)},
    ),
}


@parametrize_rows(SEVERAL)
def test_slices_are_merged_in_any_order_of_arrival(row: Several) -> None:
    found = [_endpoints(*order) for order in itertools.permutations(row.slices)]
    assert [row.expected] * len(found) == found


class Pending(NamedTuple):
    """A slice that is in effect, one that is pending after it, and an update; whether that changes anything."""

    applied: EndpointSlice | None
    pending: tuple[EndpointSlice, bool] | None
    update: tuple[EndpointSlice, bool]
    changes: bool


SLICE, OTHER = endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.1")
REORDERED = endpoint_slice("a", "10.244.0.2", "10.244.0.1")
PENDING = {
    "first": Pending(None, None, (SLICE, False), changes=True),
    "the same as what is in effect": Pending(SLICE, None, (SLICE, False), changes=False),
    "the same as what is pending": Pending(None, (SLICE, False), (SLICE, False), changes=False),
    "the same as both": Pending(SLICE, None, (SLICE, False), changes=False),
    "what is in effect, while another is pending": Pending(SLICE, (REORDERED, False), (SLICE, False), changes=True),
    "another endpoint": Pending(SLICE, None, (endpoint_slice("a", "10.244.0.1", "10.244.0.3"), False), changes=True),
    "an endpoint less": Pending(SLICE, None, (endpoint_slice("a", "10.244.0.1"), False), changes=True),
    "another order": Pending(SLICE, None, (REORDERED, False), changes=True),
    "another port": Pending(
        SLICE,
        None,
        (endpoint_slice("a", "10.244.0.1", "10.244.0.2", ports=(slice_port(port=9090),)), False),
        changes=True,
    ),
    "another trigger time": Pending(
        SLICE, None, (endpoint_slice("a", "10.244.0.1", "10.244.0.2", trigger="x"), False), changes=True
    ),
    "another slice": Pending(SLICE, None, (OTHER, False), changes=True),
    "removal of nothing": Pending(None, None, (SLICE, True), changes=False),
    "removal of an unknown slice": Pending(SLICE, None, (OTHER, True), changes=False),
    "removal of what is in effect": Pending(SLICE, None, (SLICE, True), changes=True),
    "removal of what is pending": Pending(None, (SLICE, False), (SLICE, True), changes=True),
    "removal once more": Pending(SLICE, (SLICE, True), (SLICE, True), changes=False),
    "addition after a removal": Pending(SLICE, (SLICE, True), (SLICE, False), changes=True),
}


@parametrize_rows(PENDING)
def test_update_is_compared_with_pending_or_applied_slice(row: Pending) -> None:
    cache = EndpointSliceCache(NODE)
    if row.applied is not None:
        cache.update_pending(WEB, row.applied, remove=False)
        cache.drain()
    if row.pending is not None:
        cache.update_pending(WEB, row.pending[0], remove=row.pending[1])
    assert row.changes == cache.update_pending(WEB, row.update[0], remove=row.update[1])


class Checkout(NamedTuple):
    """Slices in effect, updates after it, and the endpoints of port http before and after; None: not touched."""

    applied: tuple[EndpointSlice, ...]
    updates: tuple[tuple[EndpointSlice, bool], ...]
    expected: tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]] | None


CHECKOUTS = {
    "nothing": Checkout((), (), None),
    "nothing new": Checkout((SLICE,), (), None),
    "add": Checkout((), ((SLICE, False),), ((), (ONE, TWO))),
    "add to another": Checkout((OTHER,), ((SLICE, False),), ((ONE,), (ONE, TWO))),
    "update": Checkout((SLICE,), ((endpoint_slice("a", "10.244.0.3"), False),), ((ONE, TWO), (THREE,))),
    "remove": Checkout((SLICE,), ((SLICE, True),), ((ONE, TWO), ())),
    "remove one of two": Checkout((SLICE, OTHER), ((SLICE, True),), ((ONE, TWO), (ONE,))),
    "update and remove": Checkout(
        (SLICE, OTHER), ((endpoint_slice("b", "10.244.0.3"), False), (SLICE, True)), ((ONE, TWO), (THREE,))
    ),
    "update to empty": Checkout((SLICE,), ((endpoint_slice("a"), False),), ((ONE, TWO), ())),
    "the last of several updates": Checkout(
        (SLICE,), ((endpoint_slice("a", "10.244.0.3"), False), (endpoint_slice("a", "10.244.0.1"), False)),
        ((ONE, TWO), (ONE,)),
    ),
    "another order, the same endpoints": Checkout((SLICE,), ((REORDERED, False),), ((ONE, TWO), (ONE, TWO))),
    "added and removed again": Checkout((), ((SLICE, False), (SLICE, True)), ((), ())),
    "removed and added again": Checkout((SLICE,), ((SLICE, True), (SLICE, False)), ((ONE, TWO), (ONE, TWO))),
    "removal of an unknown slice": Checkout((SLICE,), ((OTHER, True),), None),
}  # fmt: skip


@parametrize_rows(CHECKOUTS)
def test_drain_returns_each_changed_service_before_and_after(row: Checkout) -> None:
    cache = EndpointSliceCache(NODE)
    for applied in row.applied:
        cache.update_pending(WEB, applied, remove=False)
    cache.drain()
    for update, remove in row.updates:
        cache.update_pending(WEB, update, remove=remove)
    changes = cache.drain()
    found = {
        service: (change.previous.get(HTTP, ()), change.current.get(HTTP, ())) for service, change in changes.items()
    }
    assert ({} if row.expected is None else {WEB: row.expected}) == found
    assert cache.drain() == {}


def test_services_are_drained_independently() -> None:
    cache, api = EndpointSliceCache(NODE), NamespacedName("default", "api")
    cache.update_pending(WEB, SLICE, remove=False)
    cache.update_pending(api, OTHER, remove=False)
    assert {WEB, api} == cache.drain().keys()
    cache.update_pending(api, OTHER, remove=True)
    assert {api} == cache.drain().keys()


@pytest.mark.parametrize("again", [False, True], ids=["forgotten", "and known again"])
def test_service_without_slices_is_removed_from_the_cache(*, again: bool) -> None:
    cache = EndpointSliceCache(NODE)
    changes: list[Any] = []
    for remove in (False, True, *([False] if again else [])):
        changes.append(cache.update_pending(WEB, SLICE, remove=remove))
        cache.drain()
    assert all(changes)
    assert (WEB in cache._services) is again
