"""Changes of EndpointSlices between two syncs (docs/behaviour/tracking.md#endpoint-changes)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import pytest

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import EndpointPort, EndpointSlice
from knft.track.endpoints import EndpointsChangeTracker, EndpointsMap, EndpointsUpdate, parse_time
from tests.support.kube_objects import (
    NODE,
    OTHER_NODE,
    endpoint,
    endpoint_slice,
    parametrize_rows,
    port_name,
    slice_port,
    tracked_endpoint,
)

WEB = NamespacedName("default", "web")
START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
ONE, TWO, THREE = (tracked_endpoint(f"10.244.0.{octet}") for octet in (1, 2, 3))
NOTHING_NEW = EndpointsUpdate(frozenset(), conntrack_cleanup_required=False, trigger_times={})


class Tracked:
    """A tracker and a map of one family, as a state holds them."""

    def __init__(self, *known: EndpointSlice, family: Family = Family.IPV4) -> None:
        """Start with slices that an earlier sync has merged."""
        self.tracker = EndpointsChangeTracker(family, NODE, START)
        self.endpoints = EndpointsMap()
        self.add(*known)
        self.sync()

    def add(self, *slices: EndpointSlice) -> list[bool]:
        """Tell the tracker of slices; return its answers."""
        return [self.tracker.endpoint_slice_update(found, remove=False) for found in slices]

    def remove(self, *slices: EndpointSlice) -> list[bool]:
        """Tell the tracker that slices are gone; return its answers."""
        return [self.tracker.endpoint_slice_update(found, remove=True) for found in slices]

    def sync(self) -> EndpointsUpdate:
        """Merge what is pending."""
        return self.endpoints.update(self.tracker)


class Answer(NamedTuple):
    """Slices that are merged, one that comes (or goes), and whether that changes anything."""

    known: tuple[EndpointSlice, ...]
    update: EndpointSlice
    changes: bool
    remove: bool = False


SLICE, OTHER = endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.3")
UNREADY = endpoint_slice("a", endpoint("10.244.0.1", ready=False))
READY = endpoint_slice("a", endpoint("10.244.0.1", ready=True))
TERMINATING = endpoint_slice("a", endpoint("10.244.0.1", ready=False, serving=True, terminating=True))
GONE = endpoint_slice("a", endpoint("10.244.0.1", ready=False, serving=False, terminating=True))
ANSWERS = {
    "a first slice": Answer((), SLICE, changes=True),
    "the same once more": Answer((SLICE,), SLICE, changes=False),
    "a second slice": Answer((SLICE,), OTHER, changes=True),
    "an endpoint that becomes ready": Answer((UNREADY,), READY, changes=True),
    "an endpoint that terminates": Answer((READY,), TERMINATING, changes=True),
    "an endpoint that stops serving": Answer((TERMINATING,), GONE, changes=True),
    "another order": Answer((SLICE,), endpoint_slice("a", "10.244.0.2", "10.244.0.1"), changes=True),
    "another resource version, in what is read of it": Answer(
        (SLICE,), endpoint_slice("a", "10.244.0.1", "10.244.0.2", trigger="2024-01-01T12:00:01Z"), changes=True
    ),
    "a removal": Answer((SLICE,), SLICE, changes=True, remove=True),
    "a removal of an unknown slice": Answer((SLICE,), OTHER, changes=False, remove=True),
    "a removal of an unknown Service's": Answer((), SLICE, changes=False, remove=True),
    "IPv6": Answer((), endpoint_slice("a", "fd00::1", family="IPv6"), changes=False),
    "FQDN": Answer((), endpoint_slice("a", "example.org", family="FQDN"), changes=False),
    "removal of IPv6": Answer((SLICE,), endpoint_slice("a", "fd00::1", family="IPv6"), changes=False, remove=True),
    "no label": Answer((), endpoint_slice("a", "10.244.0.1", service=None), changes=False),
    "empty label": Answer((), endpoint_slice("a", "10.244.0.1", service=""), changes=False),
}


@parametrize_rows(ANSWERS)
def test_update_returns_whether_the_slice_changes_anything(row: Answer) -> None:
    tracked = Tracked(*row.known)
    assert [row.changes] == (tracked.remove(row.update) if row.remove else tracked.add(row.update))
    changes, _ = tracked.tracker.drain()
    assert row.changes == bool(changes)


def test_update_ignores_other_pending_slices() -> None:
    """Unlike Services, on purpose."""
    tracked = Tracked(SLICE)
    assert tracked.add(OTHER, SLICE) == [True, False]


def test_updates_are_counted_and_changes_are_pending() -> None:
    tracked = Tracked()
    tracked.add(SLICE, SLICE, OTHER, endpoint_slice("c", family="FQDN"), endpoint_slice("d", service=None))
    assert (tracked.tracker.changes_total, tracked.tracker.pending) == (3, 2)
    tracked.sync()
    assert (tracked.tracker.changes_total, tracked.tracker.pending) == (3, 0)


def test_tracker_ignores_slices_of_other_family() -> None:
    slices = (SLICE, endpoint_slice("b", "fd00::1", family="IPv6"), endpoint_slice("c", "example.org", family="FQDN"))
    assert {port_name(): (ONE, TWO)} == dict(Tracked(*slices).endpoints)
    six = (tracked_endpoint("fd00::1"),)
    assert {port_name(): six} == dict(Tracked(*slices, family=Family.IPV6).endpoints)


def test_slice_without_service_label_is_ignored() -> None:
    tracked = Tracked(SLICE)
    tracked.remove(endpoint_slice("a", "10.244.0.1", service=None))
    assert {port_name(): (ONE, TWO)} == dict(tracked.endpoints)


def _on(*ports: EndpointPort) -> EndpointSlice:
    return endpoint_slice("a", "10.244.0.1", ports=ports)


class Merge(NamedTuple):
    """Slices before; what comes and goes; the endpoints by port then; the ports reported changed; conntrack."""

    before: tuple[EndpointSlice, ...]
    added: tuple[EndpointSlice, ...]
    removed: tuple[EndpointSlice, ...]
    expected: dict[ServicePortName, tuple[Endpoint, ...]]
    changed: frozenset[ServicePortName]
    udp: bool = False


HTTP, DNS, UNNAMED = port_name(), port_name("dns", "UDP"), port_name("")
UDP_53 = slice_port("dns", 53, "UDP")
ONE_53 = tracked_endpoint("10.244.0.1", 53)
LOCAL = endpoint_slice("a", endpoint("10.244.0.1", node=NODE))
MERGES = {
    "from empty": Merge((), (SLICE,), (), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "to empty": Merge((SLICE,), (), (SLICE,), {}, frozenset({HTTP})),
    "endpoint added": Merge((READY,), (SLICE,), (), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "endpoint removed": Merge((SLICE,), (READY,), (), {HTTP: (ONE,)}, frozenset({HTTP})),
    "slice added": Merge((SLICE,), (OTHER,), (), {HTTP: (ONE, TWO, THREE)}, frozenset({HTTP})),
    "slice removed": Merge((SLICE, OTHER), (), (OTHER,), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "no change in effect, unnamed": Merge(
        (_on(slice_port("")),), (_on(slice_port(""), slice_port(None)),), (), {UNNAMED: (ONE,)}, frozenset()
    ),
    "no change in effect, several slices": Merge(
        (SLICE, OTHER), (endpoint_slice("b", "10.244.0.1", "10.244.0.3"),), (), {HTTP: (ONE, TWO, THREE)}, frozenset()
    ),
    "becomes local": Merge(
        (READY,), (LOCAL,), (), {HTTP: (tracked_endpoint("10.244.0.1", is_local=True),)}, frozenset({HTTP})
    ),
    "becomes terminating": Merge(
        (READY,),
        (TERMINATING,),
        (),
        {HTTP: (tracked_endpoint("10.244.0.1", ready=False, terminating=True),)},
        frozenset({HTTP}),
    ),
    "port added": Merge(
        (_on(slice_port()),),
        (_on(slice_port(), slice_port("")),),
        (),
        {HTTP: (ONE,), UNNAMED: (ONE,)},
        frozenset({UNNAMED}),
    ),
    "port removed": Merge(
        (_on(slice_port(), slice_port("")),), (_on(slice_port()),), (), {HTTP: (ONE,)}, frozenset({UNNAMED})
    ),
    "port renamed": Merge(
        (_on(slice_port()),), (_on(slice_port("")),), (), {UNNAMED: (ONE,)}, frozenset({HTTP, UNNAMED})
    ),
    "port renumbered": Merge(
        (_on(slice_port()),),
        (_on(slice_port(port=81)),),
        (),
        {HTTP: (tracked_endpoint("10.244.0.1", 81),)},
        frozenset({HTTP}),
    ),
    "UDP from none to one": Merge((), (_on(UDP_53),), (), {DNS: (ONE_53,)}, frozenset({DNS}), udp=True),
    "UDP from one to none": Merge((_on(UDP_53),), (), (_on(UDP_53),), {}, frozenset({DNS}), udp=True),
    "UDP beside a changed port": Merge(
        (_on(UDP_53),), (_on(UDP_53, slice_port()),), (), {DNS: (ONE_53,), HTTP: (ONE,)}, frozenset({HTTP}), udp=True
    ),
    "UDP without endpoints": Merge((), (endpoint_slice("a", ports=(UDP_53,)),), (), {}, frozenset()),
    "added and removed again": Merge((), (SLICE,), (SLICE,), {}, frozenset()),
}


@parametrize_rows(MERGES)
def test_merge_updates_endpoints_and_returns_changed_ports(row: Merge) -> None:
    tracked = Tracked(*row.before)
    tracked.add(*row.added)
    tracked.remove(*row.removed)
    assert EndpointsUpdate(row.changed, row.udp, {}) == tracked.sync()
    assert row.expected == dict(tracked.endpoints)
    assert tracked.sync() == NOTHING_NEW


def test_merge_does_not_affect_other_services() -> None:
    api = endpoint_slice("api", "10.244.0.3", service="api")
    tracked = Tracked(SLICE, api)
    tracked.remove(SLICE)
    assert {WEB} == {name.service for name in tracked.sync().changed_ports}
    assert {port_name(service="api"): (THREE,)} == dict(tracked.endpoints)


def test_unchanged_udp_service_requires_no_conntrack_cleanup() -> None:
    tracked = Tracked(endpoint_slice("dns", "10.244.0.3", service="dns", ports=(UDP_53,)))
    tracked.add(SLICE)
    assert not tracked.sync().conntrack_cleanup_required


class Times(NamedTuple):
    """Trigger times of slices that come one after another, and those that are reported, in seconds after the start."""

    given: tuple[str | None, ...]
    expected: tuple[float, ...]


TIMES = {
    "one": Times(("2024-01-01T12:00:01Z",), (1,)),
    "several, in their order": Times(("2024-01-01T12:00:02Z", "2024-01-01T12:00:01Z"), (2, 1)),
    "nanoseconds": Times(("2024-01-01T12:00:01.500000000Z",), (1.5,)),
    "another zone": Times(("2024-01-01T14:00:01+02:00",), (1,)),
    "before the start": Times(("2024-01-01T11:59:59Z",), ()),
    "at the start": Times(("2024-01-01T12:00:00Z",), ()),
    "left out": Times((None,), ()),
    "empty": Times(("",), ()),
    "invalid": Times(("yesterday",), ()),
    "without a zone": Times(("2024-01-01T12:00:01",), ()),
    "valid beside all others": Times((None, "2024-01-01T12:00:03Z", "x", "2023-01-01T12:00:00Z"), (3,)),
}


@parametrize_rows(TIMES)
def test_trigger_times_before_start_are_ignored(row: Times) -> None:
    tracked = Tracked()
    tracked.add(*(endpoint_slice(f"s{index}", "10.244.0.1", trigger=text) for index, text in enumerate(row.given)))
    expected = {WEB: tuple(START + timedelta(seconds=seconds) for seconds in row.expected)} if row.expected else {}
    assert expected == tracked.sync().trigger_times
    assert tracked.sync().trigger_times == {}


def _timed(name: str, second: int, service: str = "web") -> EndpointSlice:
    return endpoint_slice(name, "10.244.0.1", service=service, trigger=f"2024-01-01T12:00:{second:02}Z")


def test_removal_drops_trigger_times_of_its_service_only() -> None:
    tracked = Tracked()
    tracked.add(_timed("a", 1), _timed("b", 2), _timed("c", 3, "api"))
    tracked.remove(_timed("a", 1))
    assert {NamespacedName("default", "api"): (START + timedelta(seconds=3),)} == tracked.sync().trigger_times


def test_removal_of_unknown_slice_keeps_trigger_times() -> None:
    tracked = Tracked()
    tracked.add(_timed("a", 1))
    tracked.remove(_timed("b", 2))
    assert {WEB: (START + timedelta(seconds=1),)} == tracked.sync().trigger_times


def test_unchanged_slice_adds_no_trigger_time() -> None:
    tracked = Tracked()
    tracked.add(_timed("a", 1), _timed("a", 1))
    assert {WEB: (START + timedelta(seconds=1),)} == tracked.sync().trigger_times


def test_parsed_time_keeps_its_offset() -> None:
    assert datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))) == parse_time("2024-01-01T12:00:00+02:00")


class Local(NamedTuple):
    """Slices, and how many distinct addresses are local and ready."""

    slices: tuple[EndpointSlice, ...]
    expected: dict[NamespacedName, int]


API = NamespacedName("default", "api")
HERE, HERE_TOO = endpoint("10.244.0.1", node=NODE), endpoint("10.244.0.2", node=NODE)
LOCALS = {
    "none": Local((), {}),
    "only elsewhere": Local((endpoint_slice("a", endpoint("10.244.0.1", node=OTHER_NODE)),), {}),
    "two here": Local((endpoint_slice("a", HERE, HERE_TOO, endpoint("10.244.0.3", node=OTHER_NODE)),), {WEB: 2}),
    "one address on two ports": Local(
        (endpoint_slice("a", HERE, ports=(slice_port(), slice_port("b", 81))),), {WEB: 1}
    ),
    "one address in two slices": Local((endpoint_slice("a", HERE), endpoint_slice("b", HERE, HERE_TOO)), {WEB: 2}),
    "another address on each port": Local(
        (endpoint_slice("a", HERE), endpoint_slice("b", HERE_TOO, ports=(slice_port("b", 81),))), {WEB: 2}
    ),
    "unready": Local((endpoint_slice("a", endpoint("10.244.0.1", node=NODE, ready=False)),), {}),
    "terminating and serving": Local(
        (endpoint_slice("a", endpoint("10.244.0.1", node=NODE, ready=False, serving=True, terminating=True)),), {}
    ),
    "two Services": Local(
        (endpoint_slice("a", HERE), endpoint_slice("b", HERE, HERE_TOO, service="api")),
        {WEB: 1, API: 2},
    ),
}


@parametrize_rows(LOCALS)
def test_local_ready_endpoints_counts_distinct_addresses(row: Local) -> None:
    tracker = Tracked(*row.slices).tracker
    found = {service: tracker.local_ready_endpoints(service) for service in (WEB, API)}
    assert row.expected == {service: count for service, count in found.items() if count}


@pytest.mark.parametrize("text", [None, "", "x", "2024-13-01T00:00:00Z", "12:00:00Z"])
def test_invalid_time_is_none(text: str | None) -> None:
    assert parse_time(text) is None
