"""What a change and an endpoint cost: instructions, bytes, transactions and objects, equal on all machines."""

import gc
import sys
from collections.abc import Iterator

import pytest
from msgspec.json import encode

from knft.apiserver.decoder import ObjectDecoder, ObjectEvent
from knft.apiserver.store import Store
from knft.families import Family
from knft.model.objects import EndpointSlice, Service
from knft.nft.codec.tables import transaction_commands
from knft.nft.transaction import Transaction
from knft.render.layout import cache_filter
from knft.sync.assemble import rendering_daemon
from tests.bench.changes import steps
from tests.bench.cluster import NODE_IP, Cluster, Shape
from tests.bench.served_cluster import service_json, slice_json
from tests.bench.timed_knft import CONFIG
from tests.support.bytecode_steps import count_bytecode_steps

MAX_INSTRUCTIONS = 11_300
"""Python instructions of a replaced endpoint, from the bytes of its event to the commands for libnftables. Python 3.11
executes 10 250."""
MAX_INSTRUCTIONS_OF_MANY = 5400
"""The same for each of 200 changes that arrive together: 4 930."""
MAX_BYTES, MAX_BYTES_OF_FIRST_SYNC = 600, 80
"""Bytes of the commands for a replaced endpoint, half of them of the cache filter, and for each endpoint of a first
sync."""
OBJECTS = 5
"""Python objects of an endpoint: as decoded (itself, the list of its addresses, its address), and two in the tracker
(itself, its address and port), which the elements of the table share."""

_FILTER = cache_filter(Family.IPV4)


class _Watched:
    """The path of objects from the API server's bytes to the commands for libnftables."""

    def __init__(self, services: int, endpoints: int = 10) -> None:
        """Sync a cluster for the first time."""
        self._cluster = Cluster(Shape("costs", services, endpoints))
        self._turn = 0
        self._decoders = {kind: ObjectDecoder(kind) for kind in (Service, EndpointSlice)}
        self._stores = {kind: Store(CONFIG.node_name) for kind in self._decoders}
        self._daemon, recorders = rendering_daemon(CONFIG)
        self._daemon.update_local_addresses(frozenset({NODE_IP}))
        self._recorder = recorders[Family.IPV4]
        for kind, encoded in ((Service, service_json), (EndpointSlice, slice_json)):
            self._receive(kind, b"".join(_event("ADDED", encode(encoded(spec))) for spec in self._cluster))
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
        assert self._daemon.sync_due()
        return [_commands(each) for each in self.transactions() if not each.is_empty]

    def _receive(self, kind: type[Service | EndpointSlice], events: bytes) -> None:
        decoded = self._decoders[kind].decode_events(events).items
        self._daemon.handle(self._stores[kind].apply_events(_objects(decoded)))


def _commands(transaction: Transaction) -> str:
    """Return the commands that ``KernelTable`` sends."""
    return _FILTER.commands(transaction) or transaction_commands(transaction)


def _objects(items: tuple[object, ...]) -> Iterator[ObjectEvent]:
    return (item for item in items if isinstance(item, ObjectEvent))


def _event(kind: str, item: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), item)


def _instructions(watched: _Watched, count: int) -> float:
    """Return the instructions of each of ``count`` changes that arrive together."""
    watched.handle(watched.next_events(count))  # Fills caches.
    events = watched.next_events(count)
    commands: list[str] = []
    steps = count_bytecode_steps(lambda: commands.extend(watched.handle(events)))
    assert commands
    return steps / count


@pytest.mark.parametrize(("count", "most"), [(1, MAX_INSTRUCTIONS), (200, MAX_INSTRUCTIONS_OF_MANY)])
def test_instructions_of_a_change_are_limited_and_independent_of_the_cluster(count: int, most: int) -> None:
    few, many = _instructions(_Watched(300), count), _instructions(_Watched(3000), count)
    assert few <= most
    assert many < few * 1.05


def test_replaced_endpoint_is_one_small_transaction() -> None:
    watched = _Watched(300)
    watched.handle(watched.next_events(1))  # A local endpoint, which takes two.
    (commands,) = watched.handle(watched.next_events(1))
    assert len(commands) <= MAX_BYTES


def test_bytes_of_a_first_sync_are_proportional_to_the_endpoints() -> None:
    fewer, more = (
        sum(len(transaction_commands(each)) for each in _Watched(100, endpoints).transactions())
        for endpoints in (10, 110)
    )
    assert (more - fewer) / (100 * 100) <= MAX_BYTES_OF_FIRST_SYNC


def test_objects_of_an_endpoint_are_few() -> None:
    """Each fact is held once."""
    fewer, more = (_allocated(endpoints) for endpoints in (10, 110))
    assert (more - fewer) / (200 * 100) <= OBJECTS * 1.02  # Lists and dictionaries are a part of this.


def _allocated(endpoints: int) -> int:
    gc.collect()
    before = sys.getallocatedblocks()
    watched = _Watched(200, endpoints)
    watched.transactions()
    gc.collect()
    return sys.getallocatedblocks() - before
