"""Where pending changes come from: the states before, and the events, over merges, splits and drains."""

from datetime import UTC, datetime

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import EndpointSlice, Service
from knft.sync.change_origins import MAX_EVENTS, Arrival, ChangeOrigins, ReceivedEvent
from knft.sync.state import ServiceState
from tests.support.kernel_harness import decode_manifest, service, slices

WEB, API = ServicePortName("default", "web", "http", "TCP"), ServicePortName("default", "api", "http", "TCP")
OLD, NEW = (Endpoint.at("10.0.0.1", 80),), (Endpoint.at("10.0.0.2", 80),)


def event(number: int) -> ReceivedEvent:
    return ReceivedEvent("Service", WEB.service, str(number), float(number), is_deleted=False)


def test_merged_origins_have_the_oldest_states_and_the_newest_events() -> None:
    first = ChangeOrigins({WEB: None}, {WEB: OLD}, {WEB.service: tuple(map(event, range(10)))})
    second = ChangeOrigins({API: None}, {WEB: NEW, API: NEW}, {WEB.service: tuple(map(event, range(10, 20)))})
    merged = first.merged_with(second)
    assert merged.ports == {WEB: None, API: None}
    assert merged.endpoints == {WEB: OLD, API: NEW}
    assert [each.received for each in merged.events[WEB.service]] == list(range(20 - MAX_EVENTS, 20))
    assert ChangeOrigins().merged_with(second) is second
    assert first.merged_with(ChangeOrigins()) == first


def test_waiting_service_ports_keep_their_origins() -> None:
    events = {WEB.service: (event(1),), API.service: (event(2),)}
    whole = ChangeOrigins({WEB: None}, {WEB: OLD, API: NEW}, events)
    assert whole.split(()) == (whole, ChangeOrigins())
    in_force, later = whole.split({API})
    assert (in_force.ports, in_force.endpoints) == ({WEB: None}, {WEB: OLD})
    assert (later.ports, later.endpoints) == ({}, {API: NEW})
    assert later.events == {API.service: (event(2),)}
    assert whole.service_ports() == [API, WEB]


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
        WEB.service: (
            ReceivedEvent("EndpointSlice", slice_name, "3", 3.0, is_deleted=False, previous=of_web, current=changed),
            ReceivedEvent("Service", WEB.service, "5", 5.0, is_deleted=True),
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
    assert {(each.is_deleted, each.previous, each.current) for each in origins.events[WEB.service]} == {
        (True, of_web, None)
    }
    assert {(each.is_deleted, each.previous, each.current) for each in origins.events[API.service]} == {
        (False, None, moved)
    }
    assert origins.endpoints.keys() == {WEB, API}


def test_without_recording_there_are_no_origins() -> None:
    state, web, of_web = state_after_first_drain(records=False)
    state.handle_slice(of_web, None, Arrival("3", 3.0))
    state.handle_service(web, None, Arrival("4", 4.0))
    drained = state.drain()
    assert drained.origins == ChangeOrigins()
    assert drained.service_ports == {WEB}
