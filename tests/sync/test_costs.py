"""What a change and an endpoint cost: instructions, bytes, transactions and objects, whatever the machine's speed."""

import gc
import logging
import sys
from collections.abc import Iterator

import pytest
from msgspec.json import encode

from knft.apiserver.decoder import ObjectDecoder, ObjectEvent
from knft.apiserver.store import Store
from knft.families import Family
from knft.model.objects import EndpointSlice, Node, Service
from knft.nft.codec.tables import transaction_commands
from knft.nft.transaction import Transaction
from knft.render.layout import cache_filter
from knft.sync.assemble import rendering_daemon
from knft.sync.daemon import Daemon
from tests.bench.changes import steps
from tests.bench.cluster import NODE_IP, Cluster, Shape
from tests.bench.served_cluster import node_json, service_json, slice_json
from tests.bench.timed_knft import CONFIG
from tests.support.bytecode_steps import BytecodeCounter, count_bytecode_steps
from tests.sync.recorded_run import recorded_run

MAX_INSTRUCTIONS = {1: 10_650, 200: 5100}
"""Python instructions of a replaced endpoint, from the bytes of its event to the commands for libnftables, by how many
changes arrive together. Python 3.11 executes 10 242 and 4 914; 3.12 and 3.13 execute fewer."""
MAX_INSTRUCTIONS_OF_RUN = {1: (9500, 15_500), 200: (5400, 6700)}
"""The same in the daemon of ``knft run``, until libnftables has the last commands, and with all that follows: the
observers, such as metrics and history, and the check of changed Services. Python 3.11 executes 9 180 and 14 286, and
for each of 200 changes 5 195 and 6 231. After the commit they depend a little on the machine and on prometheus_client,
whose histograms try one bucket after the other until the measured time fits, so these limits have more room."""
MAX_BYTES, MAX_BYTES_OF_FIRST_SYNC = 500, 80
"""Bytes of the commands for a replaced endpoint, half of them of the cache filter (467), and for each endpoint of a
first sync."""
MAX_OBJECTS = 5.2
"""Python objects of an endpoint: as decoded (itself, the tuple of its addresses, its address), and two in the tracker
(itself, its address and port), which the elements of the table share. A twentieth of the endpoints is on this node and
has two more: its element of the set for hairpin connections, and the pair of the set's name and this element. That is
5.1; collections that grow, and the interpreter itself, change it by less than 0.01."""

_FILTER = cache_filter(Family.IPV4)


class _Watched:
    """The path of objects from the API server's bytes to the commands for libnftables."""

    def __init__(self, services: int, endpoints: int = 10) -> None:
        """Sync a cluster for the first time."""
        self._cluster = Cluster(Shape("costs", services, endpoints))
        self._turn = 0
        self._decoders = {kind: ObjectDecoder(kind) for kind in (Node, Service, EndpointSlice)}
        self._stores = {kind: Store(CONFIG.node_name) for kind in self._decoders}
        self._daemon = self._new_daemon()
        self._daemon.update_local_addresses(frozenset({NODE_IP}))
        self._receive(Node, _event("ADDED", encode(node_json())))
        for kind, encoded in ((Service, service_json), (EndpointSlice, slice_json)):
            self._receive(kind, b"".join(_event("ADDED", encode(encoded(spec))) for spec in self._cluster))
        self._sync()

    def _new_daemon(self) -> Daemon:
        daemon, recorders = rendering_daemon(CONFIG)
        self._recorder = recorders[Family.IPV4]
        return daemon

    def _sync(self) -> None:
        assert self._daemon.sync_due()

    def transactions(self) -> list[Transaction]:
        """Return the transactions since the last call."""
        found, self._recorder.transactions = self._recorder.transactions, []
        return found

    def next_events(self, count: int) -> bytes:
        """Return the events of ``count`` Services that each get another endpoint."""
        changed = [after for step in steps(self._cluster, "endpoint replaced", count, self._turn) for _, after in step]
        self._turn += count
        return b"".join(_event("MODIFIED", encode(slice_json(spec, self._turn))) for spec in changed)

    def handle(self, events: bytes) -> list[str]:
        """Handle events of EndpointSlices, and return the commands for libnftables."""
        self._receive(EndpointSlice, events)
        self._sync()
        return [_commands(each) for each in self.transactions() if not each.is_empty]

    def _receive(self, kind: type[Node | Service | EndpointSlice], events: bytes) -> None:
        decoded = self._decoders[kind].decode_events(events).items
        self._daemon.handle(self._stores[kind].apply_events(_objects(decoded)))


class _WatchedRun(_Watched):
    """The same path in the daemon of ``knft run``, and what follows the commit."""

    def _new_daemon(self) -> Daemon:
        self.counter, self.steps_to_commit = BytecodeCounter(), 0
        daemon, self._library = recorded_run(CONFIG, self._record_commit)
        return daemon

    @property
    def first_commands(self) -> list[str]:
        """The commands of the first sync, until the next one."""
        return self._library.commands

    def _record_commit(self) -> None:
        self.steps_to_commit = self.counter.steps

    def _sync(self) -> None:
        super()._sync()
        self._daemon.log_service_problems()  # As the thread that watches Services, but at once.

    def transactions(self) -> list[Transaction]:
        """Return nothing: the library gets commands."""
        return []

    def handle(self, events: bytes) -> list[str]:
        """Handle events of EndpointSlices, and return the commands that libnftables got."""
        self._library.commands.clear()
        super().handle(events)
        return self._library.commands.copy()


def _commands(transaction: Transaction) -> str:
    """Return the commands that ``KernelTable`` sends."""
    return _FILTER.commands(transaction) or transaction_commands(transaction)


def _objects(items: tuple[object, ...]) -> Iterator[ObjectEvent]:
    return (item for item in items if isinstance(item, ObjectEvent))


def _event(kind: str, item: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), item)


def _instructions(watched: _Watched, count: int) -> float:
    """Return the instructions of each of ``count`` changes that arrive together."""
    # Fills caches; counted, because the first count of a process is 0 with Python 3.12.1.
    count_bytecode_steps(lambda: watched.handle(watched.next_events(count)))
    events = watched.next_events(count)
    commands: list[str] = []
    steps = count_bytecode_steps(lambda: commands.extend(watched.handle(events)))
    assert commands
    return steps / count


@pytest.mark.parametrize("count", MAX_INSTRUCTIONS)
def test_instructions_of_a_change_are_limited_and_independent_of_the_cluster(count: int) -> None:
    few, many = _instructions(_Watched(300), count), _instructions(_Watched(3000), count)
    assert few <= MAX_INSTRUCTIONS[count]
    assert many < few * 1.05


@pytest.fixture
def _no_tables(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Let ``KernelTable`` find no table, without asking the kernel; log as little as ``knft run`` by default."""
    monkeypatch.setattr("knft.kernel.table.flags_of", lambda *_: frozenset())
    caplog.set_level(logging.INFO, "knft")


def _instructions_of_run(services: int, count: int) -> tuple[float, float]:
    """Return the instructions of each of ``count`` changes in ``knft run``, to the commit and with all that follows."""
    watched = _WatchedRun(services)
    for _ in range(3):  # Fills caches.
        watched.counter.run(lambda: watched.handle(watched.next_events(count)))
    events = watched.next_events(count)
    watched.counter.steps = watched.steps_to_commit = 0
    watched.counter.run(lambda: watched.handle(events))
    return watched.steps_to_commit / count, watched.counter.steps / count


@pytest.mark.usefixtures("_no_tables")
@pytest.mark.parametrize("count", MAX_INSTRUCTIONS_OF_RUN)
def test_instructions_of_a_change_in_knft_run_are_limited(count: int) -> None:
    few, many = _instructions_of_run(300, count), _instructions_of_run(3000, count)
    for of_few, of_many, most in zip(few, many, MAX_INSTRUCTIONS_OF_RUN[count], strict=True):
        assert 0 < of_few <= most
        assert of_many < of_few * 1.05


def _bytes_of_change(services: int) -> int:
    """Return the bytes of the only transaction of a replaced endpoint."""
    watched = _Watched(services)
    watched.handle(watched.next_events(1))  # A local endpoint, which takes two.
    (commands,) = watched.handle(watched.next_events(1))
    return len(commands)


def test_replaced_endpoint_is_one_small_transaction_in_any_cluster() -> None:
    few, many = _bytes_of_change(300), _bytes_of_change(3000)
    assert few <= MAX_BYTES
    assert many == few


def test_bytes_of_a_first_sync_are_proportional_to_the_endpoints() -> None:
    fewer, more = (
        sum(len(transaction_commands(each)) for each in _Watched(100, endpoints).transactions())
        for endpoints in (10, 110)
    )
    assert (more - fewer) / (100 * 100) <= MAX_BYTES_OF_FIRST_SYNC


@pytest.mark.usefixtures("_no_tables")
@pytest.mark.parametrize(("services", "pieces"), [(100, None), (1000, 6)])
def test_first_sync_takes_a_transaction_for_each_2048_elements(services: int, pieces: int | None) -> None:
    """Of 10 000 endpoints, 500 are in the set for hairpin connections, too. Without pieces, there is one transaction.

    The others are the declarations, the chains, the main phase, and the whole table of IPv6.
    """
    forms = ["JSON" if each.startswith("{") else "text" for each in _WatchedRun(services).first_commands]
    assert forms == (["text", "text"] if pieces is None else ["text", "text", *["JSON"] * pieces, "text", "text"])


def test_objects_of_an_endpoint_are_few() -> None:
    """Each fact is held once."""
    _allocated(10)  # Fills caches.
    fewer, more = (_allocated(endpoints) for endpoints in (10, 110))
    assert (more - fewer) / (200 * 100) <= MAX_OBJECTS


def _allocated(endpoints: int) -> int:
    """Return how many more blocks are allocated with 200 Services, each with so many endpoints."""
    gc.collect()
    before = sys.getallocatedblocks()
    watched = _Watched(200, endpoints)
    watched.transactions()
    gc.collect()
    return sys.getallocatedblocks() - before
