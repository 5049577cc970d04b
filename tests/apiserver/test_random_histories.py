"""Random histories of a cluster and of failures of its server: in the end, knft has the same objects as the server."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from knft.apiserver.list_watch import WatchTimeouts
from tests.apiserver.running_source import SHORT_WATCH_TIMEOUTS, RunningSource, running_source
from tests.support.fake_api.cluster import FakeCluster, endpoint_slice, service
from tests.support.fake_api.responses import Responder, reset_connection, respond_bytes, respond_status, respond_stream
from tests.support.fake_api.server import FakeApiServer

NAMES = ("a", "b", "c", "d")
BROKEN: dict[str, Responder] = {
    "410": respond_status(410, "too old", "Expired"),
    "500": respond_status(500, "no"),
    "429": respond_status(429, "later", Retry_After="1"),
    "401": respond_status(401, "who?"),
    "reset": reset_connection,
    "rubbish": respond_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}}"),
    "half": respond_stream(b'{"type":"ADDED","object":{"metadata":{"name":"a"', ending="close"),
    "expired": respond_stream(b'{"type":"ERROR","object":{"code":410}}\n'),
    "too large": respond_status(504, "Too large resource version: 9, current: 8", "Timeout"),
}

Step = Callable[[FakeApiServer, RunningSource], None]


def _put(name: str, port: int) -> Step:
    ports = [{"name": "p", "port": port, "protocol": "TCP"}]
    return lambda server, _: _discard(server.cluster.put("services", service(name, 1 + NAMES.index(name), ports=ports)))


def _unselect(name: str) -> Step:
    def step(server: FakeApiServer, _: RunningSource) -> None:
        found = service(name, 1)
        found["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
        server.cluster.put("services", found)

    return step


def _put_slice(name: str, count: int) -> Step:
    addresses = [f"10.244.0.{number}" for number in range(1, count + 1)]
    return lambda server, _: _discard(server.cluster.put("endpointslices", endpoint_slice(name, name, *addresses)))


def _remove(collection: str, number: int) -> Step:
    def step(server: FakeApiServer, _: RunningSource) -> None:
        names = sorted(name for _, name in server.cluster.objects.get(collection, {}))
        if names:
            server.cluster.remove(collection, names[number % len(names)])

    return step


def _catch_up(server: FakeApiServer, run: RunningSource) -> None:
    """Wait until knft has all objects."""
    run.changes.wait(lambda: received_objects(run) == server_objects(server.cluster), "all objects")


def _close_watches(server: FakeApiServer, _: RunningSource) -> None:
    server.end_streams()


def _compact(server: FakeApiServer, _: RunningSource) -> None:
    server.cluster.compact()


def _change_unwatched(steps: list[Step]) -> Step:
    """Change objects while no watch is open, and compact the history before one is."""

    def step(server: FakeApiServer, run: RunningSource) -> None:
        server.respond_normally()
        _catch_up(server, run)
        with server.cluster.changed:
            server.end_streams()
            for inner in steps:
                inner(server, run)
            server.cluster.compact()

    return step


def _fail_next_requests(failure: str, count: int) -> Step:
    return lambda server, _: server.respond_next("", BROKEN[failure], count)


def _discard(_: object) -> None:
    """Discard a value."""


NAME = some.sampled_from(NAMES)
CHANGES = some.one_of(
    some.builds(_put, NAME, some.integers(1, 3)),
    some.builds(_unselect, NAME),
    some.builds(_put_slice, NAME, some.integers(0, 3)),
    some.builds(_remove, some.sampled_from(["services", "endpointslices"]), some.integers(0, 3)),
)
STEPS = some.one_of(
    CHANGES,
    some.builds(_change_unwatched, some.lists(CHANGES, min_size=1, max_size=4)),
    some.builds(_fail_next_requests, some.sampled_from(sorted(BROKEN)), some.integers(1, 3)),
    some.sampled_from([_catch_up, _close_watches, _close_watches, _compact]),
)


def server_objects(cluster: FakeCluster) -> set[tuple[str, str, object]]:
    """Return the objects of the server: names, and one field of each."""
    with cluster.changed:
        services = cluster.objects.get("services", {}).values()
        slices = cluster.objects.get("endpointslices", {}).values()
    wanted = [item for item in services if "app" in item["metadata"]["labels"]]
    return {("Service", item["metadata"]["name"], item["spec"]["ports"][0]["port"]) for item in wanted} | {
        ("EndpointSlice", item["metadata"]["name"], len(item["endpoints"])) for item in slices
    }


def received_objects(run: RunningSource) -> set[tuple[str, str, object]]:
    """Return the objects that knft has, in the same form."""
    found: set[tuple[str, str, object]] = set()
    for (kind, name), item in list(run.changes.objects.items()):
        spec = getattr(item, "spec", None)
        found.add((kind, name.name, spec.ports[0].port if spec else len(getattr(item, "endpoints", None) or ())))
    return found


@pytest.mark.parametrize("streams_lists", [True, False])
# A failing history takes long, and hypothesis would shrink it many times.
@settings(
    max_examples=50,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=some.lists(STEPS, min_size=1, max_size=25))
def test_store_converges_and_each_change_follows_the_previous_one(steps: list[Step], *, streams_lists: bool) -> None:
    """``ChangeRecorder`` checks that each change starts from the current object."""
    with FakeApiServer() as server:
        server.supports_streaming_lists, server.max_page_size = streams_lists, 2
        times = WatchTimeouts(list_idle=1.0, missing_resource_retry=40.0, short_lived=0.0)
        assert times.idle_grace == SHORT_WATCH_TIMEOUTS.idle_grace
        with running_source(server, watch_timeouts=times) as run:
            for step in steps:
                if step is _catch_up:
                    server.respond_normally()
                step(server, run)
            server.respond_normally()
            _catch_up(server, run)
            assert run.source.wait_all_listed(20)
