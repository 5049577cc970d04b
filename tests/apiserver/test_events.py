"""EventPoster: posted events, their rate limits, and that posting never waits."""

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.events import MAX_NOTE, REPEAT_SECONDS, EventCorrelator, EventPoster
from knft.configuration.settings import ClientSettings
from knft.model.events import Event, ObjectReference
from tests.apiserver.running_source import AcceleratedStopEvent, wait_until
from tests.support.fake_api.responses import TEST_TIMEOUT, never_respond, respond_status
from tests.support.fake_api.server import FakeApiServer


class PosterAndServer:
    """A fake server, and a poster that sends to it."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.connection = ApiClient(ClientSettings(server=self.server.url, qps=0))
        self.stop = AcceleratedStopEvent()
        self.dropped = 0
        self.poster = EventPoster(self.connection, "node-1", on_drop=self._count_drop)
        self.poster.start(self.stop)

    def _count_drop(self) -> None:
        self.dropped += 1

    def received_events(self, count: int) -> list[dict[str, Any]]:
        return received_events(self.server, count)


def received_events(server: FakeApiServer, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(server.requests) >= count, f"{count} events")
    return [json.loads(request.body) for request in server.requests]


@pytest.fixture
def posting() -> Iterator[PosterAndServer]:
    made = PosterAndServer()
    try:
        yield made
    finally:
        made.stop.set()
        made.connection.close()
        made.server.close()
        for thread in threading.enumerate():
            if thread.name == "events":
                thread.join(TEST_TIMEOUT)


def failed_service(name: str, note: str) -> Event:
    return Event(ObjectReference("Service", name, "shop"), "FailedToProgramService", "Sync", note)


STARTING = Event(ObjectReference("Node", "node-1"), "Starting", "StartKubeProxy", warning=False)


def test_event_note_is_printable_and_below_1024_bytes(posting: PosterAndServer) -> None:
    posting.poster.post(failed_service("web", "a\nb\x1b[31m\x00" + "ä" * 5000))
    (found,) = posting.received_events(1)
    assert found["note"].startswith("a b\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}ää")
    assert len(found["note"].encode()) <= MAX_NOTE < 1024


def test_event_name_has_at_most_253_characters(posting: PosterAndServer) -> None:
    posting.poster.post(Event(ObjectReference("Node", "n" * 253), "Starting", "StartKubeProxy"))
    assert len(posting.received_events(1)[0]["metadata"]["name"]) <= 253


def test_repeated_event_is_counted_and_not_sent() -> None:
    correlator, event = EventCorrelator(), failed_service("web", "no")
    assert correlator.correlate(event, 0) == event
    assert [correlator.correlate(event, now) for now in (1, 2, REPEAT_SECONDS - 1)] == [None] * 3
    again = correlator.correlate(event, REPEAT_SECONDS + 1)
    assert again is not None
    assert again.note == "no (repeated; 3 more since the last event)"


def test_events_of_one_object_are_limited() -> None:
    correlator, sent = EventCorrelator(), 0
    for second in range(3600):
        event = failed_service("web", f"error {second}")
        sent += correlator.correlate(event, second) is not None
    assert sent <= 10 + 3600 / 300 + 1


def test_events_of_many_objects_are_limited() -> None:
    correlator, sent = EventCorrelator(), 0
    for second in range(3600):
        for number in range(20):
            sent += correlator.correlate(failed_service(f"s{number}-{second}", "no"), second) is not None
    assert sent <= 50 + 3600 * 0.2 + 1
    assert len(correlator._sent) <= 4097
    assert len(correlator._object_buckets) <= 4097


def test_events_that_the_limit_left_out_are_logged(posting: PosterAndServer, caplog: pytest.LogCaptureFixture) -> None:
    """Repeated events do not count."""
    poster = EventPoster(posting.connection, "node-1", lambda: 0.0)
    for number in (*range(60), 0):
        poster.post(failed_service(f"s{number}", "note"))
    poster.start(posting.stop)
    wait_until(lambda: bool(caplog.messages), "a log line")
    assert caplog.messages == ["did not send 10 events: knft sends at most 50 at once, then 12 in a minute"]


def test_failed_event_is_retried_and_then_dropped(posting: PosterAndServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "knft")
    posting.server.respond_next("post", respond_status(503, "not now"), times=3)
    posting.poster.post(STARTING)
    posting.poster.post(Event(ObjectReference("Node", "node-2"), "Starting", "StartKubeProxy"))
    found = posting.received_events(4)
    assert [item["regarding"]["name"] for item in found] == ["node-1"] * 3 + ["node-2"]
    wait_until(lambda: "dropped" in caplog.text, "the dropped event is reported")
    logged = [
        record.getMessage() for record in caplog.records if record.name == "knft" and record.levelno > logging.DEBUG
    ]
    assert logged == ["dropped 1 events because the API server did not accept them"]
    assert posting.dropped == 1


def test_forbidden_event_is_dropped(posting: PosterAndServer) -> None:
    posting.server.respond_next("post", respond_status(403, "no"))
    posting.poster.post(STARTING)
    posting.poster.post(Event(ObjectReference("Node", "node-2"), "Starting", "StartKubeProxy"))
    assert [item["regarding"]["name"] for item in posting.received_events(2)] == ["node-1", "node-2"]


def test_post_does_not_wait_for_a_hanging_server(posting: PosterAndServer) -> None:
    posting.server.respond_next("", never_respond, times=1000)
    for number in range(500):
        posting.poster.post(Event(ObjectReference("Service", f"s{number}", "shop"), "Reason", "Action"))
    posting.stop.set()
    posting.connection.close()
