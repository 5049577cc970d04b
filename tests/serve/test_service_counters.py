"""ServiceCounters: readings during syncs, and readings that fail. A function takes the kernel's place."""

import logging
import threading
from collections.abc import Callable

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.counter_reader import Counts
from knft.model.names import ServicePortName
from knft.serve import kernel_counters, service_counters
from knft.serve.connection_totals import Connections
from knft.serve.kernel_counters import KernelCounters
from knft.serve.service_counters import ServiceCounters
from knft.serve.timestamp import now
from tests.support.kernel_harness import CONFIG, service
from tests.support.memory_harness import MemoryHarness

WEB = ServicePortName("default", "web", "http", "TCP")
ELEMENT = bytes([10, 96, 0, 10, 6, 0, 0, 0, 0, 80, 0, 0])


class Node:
    """One family whose counters ``dump`` returns, and whose syncs ``counters`` observes; the other has no sync."""

    def __init__(self) -> None:
        self._harness = MemoryHarness(config=structs.replace(CONFIG, service_counters=True))
        self.counters = ServiceCounters(now)
        self.counters.sync_failed(Family.IPV6, 0.1, "refused")
        self.dump: Callable[[], Counts] = dict

    def read_counters(self, family: int, _table: str, _sets: list[str]) -> dict[str, Counts]:
        return {"service-connections": self.dump()} if family == Family.IPV4.number else {}

    def create(self) -> None:
        self._harness.apply(service("web"))
        self._sync()

    def delete(self) -> None:
        self._harness.delete("Service", "web")
        self._sync()

    def _sync(self) -> None:
        self.counters.sync_succeeded(self._harness.sync(), self._harness.state)

    def read(self, dump: Callable[[], Counts]) -> dict[ServicePortName, Connections]:
        self.dump = dump
        self.counters.read()
        return self.counters.by_service_port()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    created = Node()
    created.create()
    monkeypatch.setattr(service_counters, "read_counters", created.read_counters)
    return created


def test_service_that_is_deleted_during_a_dump_counts_from_zero_when_it_is_created_again(node: Node) -> None:
    assert node.read(lambda: {ELEMENT: 100}) == {WEB: Connections(100)}

    def dump() -> Counts:
        node.delete()
        return {ELEMENT: 100}

    assert node.read(dump) == {}
    node.create()
    assert node.read(lambda: {ELEMENT: 150}) == {WEB: Connections(150)}


def test_service_that_is_created_again_during_a_dump_has_only_its_own_connections(node: Node) -> None:
    assert node.read(lambda: {ELEMENT: 1000}) == {WEB: Connections(1000)}

    def dump() -> Counts:
        node.delete()
        node.create()
        return {ELEMENT: 1003}

    assert node.read(dump) == {}
    assert node.read(lambda: {ELEMENT: 3}) == {WEB: Connections(3)}


def test_refused_reading_is_logged_when_it_begins_and_when_it_ends(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> Counts:
        msg = "no buffer space"
        raise KernelError(msg)

    with caplog.at_level(logging.INFO, "knft"):
        for dump in (refuse, refuse, dict, dict, refuse):
            node.read(dump)
    problem = "the connections of Services are not counted: no buffer space"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"IPv4: {problem}"),
        ("INFO", f"IPv4: no longer: {problem}"),
        ("WARNING", f"IPv4: {problem}"),
    ]


def test_unexpected_error_is_an_error_once_and_then_for_debugging(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop, failures = threading.Event(), iter(["a", "a", "b", "", "", "b", ""])

    def dump() -> Counts:
        failure = next(failures, None)
        if failure:
            raise ValueError(failure)
        if failure is None:
            stop.set()
        return {}

    node.dump = dump
    monkeypatch.setattr(kernel_counters, "READ_SECONDS", 0.0)
    with caplog.at_level(logging.DEBUG, "knft"):
        KernelCounters(node.counters).run(stop)
    failed, ended = (
        "the reading of counters failed unexpectedly; please report this",
        "the readings of counters succeed again",
    )
    logged = [(record.levelname, record.message) for record in caplog.records if record.message in {failed, ended}]
    assert logged == [
        ("ERROR", failed),
        ("DEBUG", failed),
        ("ERROR", failed),
        ("INFO", ended),
        ("ERROR", failed),
        ("INFO", ended),
    ]
    assert all(record.exc_info for record in caplog.records if record.message == failed)
