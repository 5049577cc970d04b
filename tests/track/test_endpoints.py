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
    parametrize_cases,
    port_name,
    slice_port,
    tracked_endpoint,
)

WEB = NamespacedName("default", "web")
START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
ONE, TWO, THREE = (tracked_endpoint(f"10.244.0.{octet}") for octet in (1, 2, 3))
NO_UPDATE = EndpointsUpdate({}, conntrack_cleanup_required=False, trigger_times={})


class TrackedEndpoints:
    """The EndpointsChangeTracker and the EndpointsMap of one family."""

    def __init__(self, *merged: EndpointSlice, family: Family = Family.IPV4) -> None:
        """Merge ``merged``, as an earlier sync did."""
        self.tracker = EndpointsChangeTracker(family, NODE, START)
        self.endpoints = EndpointsMap()
        self.add(*merged)
        self.sync()

    def add(self, *slices: EndpointSlice) -> list[bool]:
        """Add or update slices; return whether each changed anything."""
        return [self.tracker.record_slice(item, remove=False) for item in slices]

    def remove(self, *slices: EndpointSlice) -> list[bool]:
        """Remove slices; return whether each removal changed anything."""
        return [self.tracker.record_slice(item, remove=True) for item in slices]

    def sync(self) -> EndpointsUpdate:
        """Merge the pending changes."""
        return self.endpoints.update(self.tracker)


class UpdateCase(NamedTuple):
    """The merged slices, an update or removal of one, and whether it changes anything."""

    merged: tuple[EndpointSlice, ...]
    update: EndpointSlice
    is_change: bool
    remove: bool = False


SLICE, OTHER = endpoint_slice("a", "10.244.0.1", "10.244.0.2"), endpoint_slice("b", "10.244.0.3")
UNREADY = endpoint_slice("a", endpoint("10.244.0.1", ready=False))
READY = endpoint_slice("a", endpoint("10.244.0.1", ready=True))
TERMINATING = endpoint_slice("a", endpoint("10.244.0.1", ready=False, serving=True, terminating=True))
NOT_SERVING = endpoint_slice("a", endpoint("10.244.0.1", ready=False, serving=False, terminating=True))
UPDATES = {
    "first slice": UpdateCase((), SLICE, is_change=True),
    "unchanged slice": UpdateCase((SLICE,), SLICE, is_change=False),
    "second slice": UpdateCase((SLICE,), OTHER, is_change=True),
    "endpoint becomes ready": UpdateCase((UNREADY,), READY, is_change=True),
    "endpoint starts terminating": UpdateCase((READY,), TERMINATING, is_change=True),
    "endpoint stops serving": UpdateCase((TERMINATING,), NOT_SERVING, is_change=True),
    "endpoints in another order": UpdateCase((SLICE,), endpoint_slice("a", "10.244.0.2", "10.244.0.1"), is_change=True),
    "another trigger time": UpdateCase(
        (SLICE,), endpoint_slice("a", "10.244.0.1", "10.244.0.2", trigger="2024-01-01T12:00:01Z"), is_change=True
    ),
    "removal": UpdateCase((SLICE,), SLICE, is_change=True, remove=True),
    "removal of an unknown slice": UpdateCase((SLICE,), OTHER, is_change=False, remove=True),
    "removal of a slice of an unknown Service": UpdateCase((), SLICE, is_change=False, remove=True),
    "slice of the other family": UpdateCase((), endpoint_slice("a", "fd00::1", family="IPv6"), is_change=False),
    "slice of type FQDN": UpdateCase((), endpoint_slice("a", "example.org", family="FQDN"), is_change=False),
    "removal of a slice of the other family": UpdateCase(
        (SLICE,), endpoint_slice("a", "fd00::1", family="IPv6"), is_change=False, remove=True
    ),
    "no Service label": UpdateCase((), endpoint_slice("a", "10.244.0.1", service=None), is_change=False),
    "empty Service label": UpdateCase((), endpoint_slice("a", "10.244.0.1", service=""), is_change=False),
}


@parametrize_cases(UPDATES)
def test_update_returns_whether_the_slice_changes_anything(case: UpdateCase) -> None:
    tracked = TrackedEndpoints(*case.merged)
    assert [case.is_change] == (tracked.remove(case.update) if case.remove else tracked.add(case.update))
    changes, _ = tracked.tracker.drain()
    assert case.is_change == bool(changes)


def test_update_ignores_other_pending_slices() -> None:
    """The tracker of Services instead returns whether any Service is pending."""
    tracked = TrackedEndpoints(SLICE)
    assert tracked.add(OTHER, SLICE) == [True, False]


def test_relevant_updates_are_counted_and_changes_are_pending() -> None:
    tracked = TrackedEndpoints()
    tracked.add(SLICE, SLICE, OTHER, endpoint_slice("c", family="FQDN"), endpoint_slice("d", service=None))
    assert (tracked.tracker.changes_total, tracked.tracker.changes_pending) == (3, 2)
    tracked.sync()
    assert (tracked.tracker.changes_total, tracked.tracker.changes_pending) == (3, 0)


def test_tracker_ignores_slices_of_other_family() -> None:
    slices = (SLICE, endpoint_slice("b", "fd00::1", family="IPv6"), endpoint_slice("c", "example.org", family="FQDN"))
    assert {port_name(): (ONE, TWO)} == dict(TrackedEndpoints(*slices).endpoints)
    ipv6_endpoints = (tracked_endpoint("fd00::1"),)
    assert {port_name(): ipv6_endpoints} == dict(TrackedEndpoints(*slices, family=Family.IPV6).endpoints)


def test_removal_of_slice_without_service_label_is_ignored() -> None:
    tracked = TrackedEndpoints(SLICE)
    tracked.remove(endpoint_slice("a", "10.244.0.1", service=None))
    assert {port_name(): (ONE, TWO)} == dict(tracked.endpoints)


def _slice_with_ports(*ports: EndpointPort) -> EndpointSlice:
    return endpoint_slice("a", "10.244.0.1", ports=ports)


class MergeCase(NamedTuple):
    """Slices before, added and removed slices, the resulting endpoints, and the fields of the returned update."""

    before: tuple[EndpointSlice, ...]
    added: tuple[EndpointSlice, ...]
    removed: tuple[EndpointSlice, ...]
    expected: dict[ServicePortName, tuple[Endpoint, ...]]
    changed: frozenset[ServicePortName]
    requires_cleanup: bool = False


HTTP, DNS, UNNAMED = port_name(), port_name("dns", "UDP"), port_name("")
UDP_53 = slice_port("dns", 53, "UDP")
ONE_53 = tracked_endpoint("10.244.0.1", 53)
LOCAL = endpoint_slice("a", endpoint("10.244.0.1", node=NODE))
MERGES = {
    "first slice": MergeCase((), (SLICE,), (), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "last slice removed": MergeCase((SLICE,), (), (SLICE,), {}, frozenset({HTTP})),
    "endpoint added": MergeCase((READY,), (SLICE,), (), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "endpoint removed": MergeCase((SLICE,), (READY,), (), {HTTP: (ONE,)}, frozenset({HTTP})),
    "slice added": MergeCase((SLICE,), (OTHER,), (), {HTTP: (ONE, TWO, THREE)}, frozenset({HTTP})),
    "slice removed": MergeCase((SLICE, OTHER), (), (OTHER,), {HTTP: (ONE, TWO)}, frozenset({HTTP})),
    "ignored port added to a slice with an unnamed port": MergeCase(
        (_slice_with_ports(slice_port("")),),
        (_slice_with_ports(slice_port(""), slice_port(None)),),
        (),
        {UNNAMED: (ONE,)},
        frozenset(),
    ),
    "endpoint added that another slice has": MergeCase(
        (SLICE, OTHER), (endpoint_slice("b", "10.244.0.1", "10.244.0.3"),), (), {HTTP: (ONE, TWO, THREE)}, frozenset()
    ),
    "endpoint becomes local": MergeCase(
        (READY,), (LOCAL,), (), {HTTP: (tracked_endpoint("10.244.0.1", is_local=True),)}, frozenset({HTTP})
    ),
    "endpoint becomes terminating": MergeCase(
        (READY,),
        (TERMINATING,),
        (),
        {HTTP: (tracked_endpoint("10.244.0.1", ready=False, terminating=True),)},
        frozenset({HTTP}),
    ),
    "port added": MergeCase(
        (_slice_with_ports(slice_port()),),
        (_slice_with_ports(slice_port(), slice_port("")),),
        (),
        {HTTP: (ONE,), UNNAMED: (ONE,)},
        frozenset({UNNAMED}),
    ),
    "port removed": MergeCase(
        (_slice_with_ports(slice_port(), slice_port("")),),
        (_slice_with_ports(slice_port()),),
        (),
        {HTTP: (ONE,)},
        frozenset({UNNAMED}),
    ),
    "port renamed": MergeCase(
        (_slice_with_ports(slice_port()),),
        (_slice_with_ports(slice_port("")),),
        (),
        {UNNAMED: (ONE,)},
        frozenset({HTTP, UNNAMED}),
    ),
    "port renumbered": MergeCase(
        (_slice_with_ports(slice_port()),),
        (_slice_with_ports(slice_port(port=81)),),
        (),
        {HTTP: (tracked_endpoint("10.244.0.1", 81),)},
        frozenset({HTTP}),
    ),
    "first UDP endpoint": MergeCase(
        (), (_slice_with_ports(UDP_53),), (), {DNS: (ONE_53,)}, frozenset({DNS}), requires_cleanup=True
    ),
    "last UDP endpoint removed": MergeCase(
        (_slice_with_ports(UDP_53),), (), (_slice_with_ports(UDP_53),), {}, frozenset({DNS}), requires_cleanup=True
    ),
    "TCP port added to a slice with UDP": MergeCase(
        (_slice_with_ports(UDP_53),),
        (_slice_with_ports(UDP_53, slice_port()),),
        (),
        {DNS: (ONE_53,), HTTP: (ONE,)},
        frozenset({HTTP}),
        requires_cleanup=True,
    ),
    "UDP port without endpoints": MergeCase((), (endpoint_slice("a", ports=(UDP_53,)),), (), {}, frozenset()),
    "slice added and removed": MergeCase((), (SLICE,), (SLICE,), {}, frozenset()),
}


@parametrize_cases(MERGES)
def test_merge_updates_endpoints_and_returns_changed_ports(case: MergeCase) -> None:
    tracked = TrackedEndpoints(*case.before)
    tracked.add(*case.added)
    tracked.remove(*case.removed)
    former = {name: tracked.endpoints.get(name, ()) for name in case.changed}
    assert EndpointsUpdate(former, case.requires_cleanup, {}) == tracked.sync()
    assert case.expected == dict(tracked.endpoints)
    assert tracked.sync() == NO_UPDATE


def test_merge_does_not_affect_other_services() -> None:
    api = endpoint_slice("api", "10.244.0.3", service="api")
    tracked = TrackedEndpoints(SLICE, api)
    tracked.remove(SLICE)
    assert {WEB} == {name.service for name in tracked.sync().former}
    assert {port_name(service="api"): (THREE,)} == dict(tracked.endpoints)


def test_unchanged_udp_service_requires_no_conntrack_cleanup() -> None:
    tracked = TrackedEndpoints(endpoint_slice("dns", "10.244.0.3", service="dns", ports=(UDP_53,)))
    tracked.add(SLICE)
    assert not tracked.sync().conntrack_cleanup_required


class TriggerTimesCase(NamedTuple):
    """Trigger times of successive slices, and the reported ones in seconds after START."""

    given: tuple[str | None, ...]
    expected: tuple[float, ...]


TIMES = {
    "one": TriggerTimesCase(("2024-01-01T12:00:01Z",), (1,)),
    "several, in order of arrival": TriggerTimesCase(("2024-01-01T12:00:02Z", "2024-01-01T12:00:01Z"), (2, 1)),
    "nanoseconds": TriggerTimesCase(("2024-01-01T12:00:01.500000000Z",), (1.5,)),
    "another time zone": TriggerTimesCase(("2024-01-01T14:00:01+02:00",), (1,)),
    "before the start": TriggerTimesCase(("2024-01-01T11:59:59Z",), ()),
    "at the start": TriggerTimesCase(("2024-01-01T12:00:00Z",), ()),
    "missing": TriggerTimesCase((None,), ()),
    "empty": TriggerTimesCase(("",), ()),
    "invalid": TriggerTimesCase(("yesterday",), ()),
    "without a time zone": TriggerTimesCase(("2024-01-01T12:00:01",), ()),
    "one valid among missing, invalid and old ones": TriggerTimesCase(
        (None, "2024-01-01T12:00:03Z", "x", "2023-01-01T12:00:00Z"), (3,)
    ),
}


@parametrize_cases(TIMES)
def test_trigger_times_before_start_are_ignored(case: TriggerTimesCase) -> None:
    tracked = TrackedEndpoints()
    tracked.add(*(endpoint_slice(f"s{index}", "10.244.0.1", trigger=text) for index, text in enumerate(case.given)))
    expected = {WEB: tuple(START + timedelta(seconds=seconds) for seconds in case.expected)} if case.expected else {}
    assert expected == tracked.sync().trigger_times
    assert tracked.sync().trigger_times == {}


def _slice_with_trigger(name: str, second: int, service: str = "web") -> EndpointSlice:
    return endpoint_slice(name, "10.244.0.1", service=service, trigger=f"2024-01-01T12:00:{second:02}Z")


def test_removal_drops_trigger_times_of_its_service_only() -> None:
    tracked = TrackedEndpoints()
    tracked.add(_slice_with_trigger("a", 1), _slice_with_trigger("b", 2), _slice_with_trigger("c", 3, "api"))
    tracked.remove(_slice_with_trigger("a", 1))
    assert {NamespacedName("default", "api"): (START + timedelta(seconds=3),)} == tracked.sync().trigger_times


def test_removal_of_unknown_slice_keeps_trigger_times() -> None:
    tracked = TrackedEndpoints()
    tracked.add(_slice_with_trigger("a", 1))
    tracked.remove(_slice_with_trigger("b", 2))
    assert {WEB: (START + timedelta(seconds=1),)} == tracked.sync().trigger_times


def test_unchanged_slice_adds_no_trigger_time() -> None:
    tracked = TrackedEndpoints()
    tracked.add(_slice_with_trigger("a", 1), _slice_with_trigger("a", 1))
    assert {WEB: (START + timedelta(seconds=1),)} == tracked.sync().trigger_times


def test_parsed_time_keeps_its_offset() -> None:
    assert datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))) == parse_time("2024-01-01T12:00:00+02:00")


class LocalCountCase(NamedTuple):
    """Slices, and the number of distinct local and ready addresses of each Service."""

    slices: tuple[EndpointSlice, ...]
    expected: dict[NamespacedName, int]


API = NamespacedName("default", "api")
LOCAL_ONE, LOCAL_TWO = endpoint("10.244.0.1", node=NODE), endpoint("10.244.0.2", node=NODE)
LOCAL_COUNTS = {
    "no slices": LocalCountCase((), {}),
    "remote endpoint": LocalCountCase((endpoint_slice("a", endpoint("10.244.0.1", node=OTHER_NODE)),), {}),
    "two local endpoints and a remote one": LocalCountCase(
        (endpoint_slice("a", LOCAL_ONE, LOCAL_TWO, endpoint("10.244.0.3", node=OTHER_NODE)),), {WEB: 2}
    ),
    "one address on two ports": LocalCountCase(
        (endpoint_slice("a", LOCAL_ONE, ports=(slice_port(), slice_port("b", 81))),), {WEB: 1}
    ),
    "one address in two slices": LocalCountCase(
        (endpoint_slice("a", LOCAL_ONE), endpoint_slice("b", LOCAL_ONE, LOCAL_TWO)), {WEB: 2}
    ),
    "another address on each port": LocalCountCase(
        (endpoint_slice("a", LOCAL_ONE), endpoint_slice("b", LOCAL_TWO, ports=(slice_port("b", 81),))), {WEB: 2}
    ),
    "unready endpoint": LocalCountCase((endpoint_slice("a", endpoint("10.244.0.1", node=NODE, ready=False)),), {}),
    "terminating and serving endpoint": LocalCountCase(
        (endpoint_slice("a", endpoint("10.244.0.1", node=NODE, ready=False, serving=True, terminating=True)),), {}
    ),
    "two Services": LocalCountCase(
        (endpoint_slice("a", LOCAL_ONE), endpoint_slice("b", LOCAL_ONE, LOCAL_TWO, service="api")),
        {WEB: 1, API: 2},
    ),
}


@parametrize_cases(LOCAL_COUNTS)
def test_local_ready_endpoints_counts_distinct_addresses(case: LocalCountCase) -> None:
    tracker = TrackedEndpoints(*case.slices).tracker
    counts = {service: tracker.local_ready_endpoints(service) for service in (WEB, API)}
    assert case.expected == {service: count for service, count in counts.items() if count}


@pytest.mark.parametrize("text", [None, "", "x", "2024-13-01T00:00:00Z", "12:00:00Z"])
def test_invalid_time_is_none(text: str | None) -> None:
    assert parse_time(text) is None
