"""Where pending changes come from: the states before, and the events, over merges, splits and drains."""

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import EndpointSlice, Service
from knft.sync.change_origins import ChangeOrigins
from knft.sync.service_events import Arrival, ReceivedEvent, ServiceEvents, Transition
from knft.sync.state import ServiceState
from tests.support.kernel_harness import decode_manifest, service, slices

WEB, API = ServicePortName("default", "web", "http", "TCP"), ServicePortName("default", "api", "http", "TCP")
OLD, NEW = (Endpoint.at("10.0.0.1", 80),), (Endpoint.at("10.0.0.2", 80),)


def decoded_slice(numbers: Sequence[int]) -> EndpointSlice:
    found = decode_manifest(slices("web", numbers)[0])
    assert isinstance(found, EndpointSlice)
    return found


def event(number: int) -> ReceivedEvent:
    return ReceivedEvent("Service", WEB.service, str(number), float(number), is_deleted=False)


def test_merged_origins_have_the_oldest_states_and_the_newest_events() -> None:
    api = ServiceEvents(event(3))
    first = ChangeOrigins({WEB: None}, {WEB: OLD}, {WEB.service: ServiceEvents(event(1))})
    second = ChangeOrigins({API: None}, {WEB: NEW, API: NEW}, {WEB.service: ServiceEvents(event(2)), API.service: api})
    merged = first.merged_with(second)
    assert merged.ports == {WEB: None, API: None}
    assert merged.endpoints == {WEB: OLD, API: NEW}
    assert merged.events == {WEB.service: ServiceEvents(event(2)), API.service: api}
    assert ChangeOrigins().merged_with(second) is second
    assert first.merged_with(ChangeOrigins()) == first


def test_merged_events_compare_the_slices_of_both() -> None:
    """Without another event of a slice, the only one stays unexamined."""
    before, between, after = (decoded_slice(numbers) for numbers in ((1, 2), (2, 3), (3, 4)))
    first, second = ServiceEvents(), ServiceEvents(event(3))
    first.record_slice(event(1), before, between)
    assert first.merged_with(ServiceEvents(event(2))) == ServiceEvents(event(2), event(1), (before, between))
    second.record_slice(event(2), between, after)
    merged = first.merged_with(second)
    assert (merged.service_event, merged.slice_event, merged.unexamined) == (event(3), event(2), None)
    expected = {
        ("10.244.2.1", 8080): Transition(event(1), is_gained=False),
        ("10.244.2.2", 8080): Transition(event(2), is_gained=False),
        ("10.244.2.3", 8080): Transition(event(1), is_gained=True),
        ("10.244.2.4", 8080): Transition(event(2), is_gained=True),
    }
    assert merged.transitions().readiness == merged.transitions().presence == expected
    assert first.unexamined == (before, between)


def test_changed_port_changes_all_endpoints_of_a_slice() -> None:
    before = decoded_slice((1,))
    document = slices("web", (1,))[0]
    document["ports"][0]["port"] = 9090
    after = decode_manifest(document)
    assert isinstance(after, EndpointSlice)
    events = ServiceEvents()
    events.record_slice(event(1), before, after)
    assert events.transitions().presence == {
        ("10.244.2.1", 8080): Transition(event(1), is_gained=False),
        ("10.244.2.1", 9090): Transition(event(1), is_gained=True),
    }


def test_waiting_service_ports_keep_their_origins() -> None:
    events = {WEB.service: ServiceEvents(event(1)), API.service: ServiceEvents(event(2))}
    whole = ChangeOrigins({WEB: None}, {WEB: OLD, API: NEW}, events)
    assert whole.split(()) == (whole, ChangeOrigins())
    in_force, later = whole.split({API})
    assert (in_force.ports, in_force.endpoints) == ({WEB: None}, {WEB: OLD})
    assert (later.ports, later.endpoints) == ({}, {API: NEW})
    assert later.events == {API.service: events[API.service]}
    assert ChangeOrigins({WEB: None, API: None}, {API: NEW}).service_ports() == [API, WEB]


def state_after_first_drain(*, records: bool) -> tuple[ServiceState, Service, EndpointSlice]:
    state = ServiceState(Family.IPV4, "node-1", datetime(2026, 1, 1, tzinfo=UTC), records_origins=records)
    web, of_web = decode_manifest(service("web")), decode_manifest(slices("web", (1, 2))[0])
    assert isinstance(web, Service)
    assert isinstance(of_web, EndpointSlice)
    state.handle_service(None, web, Arrival("1", 1.0))
    state.handle_slice(None, of_web, Arrival("2", 2.0))
    assert state.drain().origins == ChangeOrigins()
    return state, web, of_web


def test_drain_returns_what_was_before_and_the_events() -> None:
    state, web, of_web = state_after_first_drain(records=True)
    endpoints, port = state.endpoints(WEB), state.service_port(WEB)
    changed = decode_manifest(slices("web", (2, 3))[0])
    assert isinstance(changed, EndpointSlice)
    state.handle_slice(of_web, changed, Arrival("3", 3.0))
    state.handle_slice(changed, changed, Arrival("4", 4.0))
    state.handle_service(web, None, Arrival("5", 5.0))
    origins = state.drain().origins
    assert origins.ports == {WEB: port}
    assert origins.endpoints == {WEB: endpoints}
    slice_name = NamespacedName("default", "web-ipv4")
    assert origins.events == {
        WEB.service: ServiceEvents(
            ReceivedEvent("Service", WEB.service, "5", 5.0, is_deleted=True),
            ReceivedEvent("EndpointSlice", slice_name, "3", 3.0, is_deleted=False),
            (of_web, changed),
        )
    }
    assert state.drain().origins == ChangeOrigins()


def test_slice_that_moves_to_another_service_is_an_event_of_both() -> None:
    state, _, of_web = state_after_first_drain(records=True)
    document = slices("web", (1, 2))[0]
    document["metadata"]["labels"] = {"kubernetes.io/service-name": "api"}
    moved = decode_manifest(document)
    assert isinstance(moved, EndpointSlice)
    state.handle_slice(of_web, moved, Arrival("3", 3.0))
    origins = state.drain().origins
    slice_name = NamespacedName("default", "web-ipv4")
    deleted, added = (
        ReceivedEvent("EndpointSlice", slice_name, "3", 3.0, is_deleted=is_deleted) for is_deleted in (True, False)
    )
    assert origins.events == {
        WEB.service: ServiceEvents(None, deleted, (of_web, None)),
        API.service: ServiceEvents(None, added, (None, moved)),
    }
    assert origins.endpoints.keys() == {WEB, API}


ENDPOINTS = range(1, 201)


@contextmanager
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def test_memory_of_pending_events_is_bounded_by_the_endpoints_that_changed() -> None:
    """No sync drains them, and the same endpoint comes and goes."""
    state, _, of_web = state_after_first_drain(records=True)
    with traced_memory():
        sizes = []
        for number in range(40):
            changed = decoded_slice(ENDPOINTS if number % 2 else ENDPOINTS[1:])
            state.handle_slice(of_web, changed, Arrival(str(number), float(number)))
            of_web = changed
            if number % 2:
                sizes.append(tracemalloc.get_traced_memory()[0])
    print(f"{sizes[1]} and {sizes[-1]} bytes")
    assert sizes[-1] - sizes[1] < 16 << 10  # The slices of one event take 20 KiB.


def test_without_recording_there_are_no_origins() -> None:
    state, web, of_web = state_after_first_drain(records=False)
    state.handle_slice(of_web, None, Arrival("3", 3.0))
    state.handle_service(web, None, Arrival("4", 4.0))
    drained = state.drain()
    assert drained.origins == ChangeOrigins()
    assert drained.service_ports == {WEB}
