"""The cache filter makes libnftables list less before a transaction of elements, and changes nothing else."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from knft.config import Config
from knft.errors import KernelError, UnavailableError
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.kernel.worker_messages import SetPart
from knft.model.objects import ObjectChange
from knft.nft.codec.tables import declarations_text
from knft.nft.expressions import Drop, Goto, Jump
from knft.nft.objects import Chain, Container, Contents, Entry, Key, Value
from knft.nft.transaction import Transaction
from knft.render import layout, names
from knft.sync.assemble import live_daemon
from knft.sync.invalidation import Invalidation
from knft.sync.prepare import MAX_ELEMENTS
from tests.bench.measure import process_cpu_seconds
from tests.support.explain_sources import served, slice_ports
from tests.support.kube_objects import endpoint_slice
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import CAN_OWN_TABLES, LIBRARY_VERSION

pytestmark = pytest.mark.kernel

FAMILIES = pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)

ALL_OPTIONS = Config("node-1", service_counters=True, localhost_nodeports=True)
ADDRESSES = {Family.IPV4: ("10.0.0.1", "10.96.255.254"), Family.IPV6: ("fd00::1", "2001:db8::ffff:0:0:1")}
VERDICTS = (Entry(Goto("target"), "ns/web:http"), Entry(Jump("target")), Entry(Drop()))


class _Recorded:
    """A library that records its commands."""

    def __init__(self, library: WorkerProcess) -> None:
        self._library = library
        self.commands: list[str] = []
        self.refused = 0
        """How many of the next commands are refused."""

    def run(self, commands: str, *, terse: bool = False) -> str:
        self.commands.append(commands)
        if self.refused:
            self.refused -= 1
            msg = "refused for the test"
            raise KernelError(msg)
        return self._library.run(commands, terse=terse)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        self._library.dump_elements(family, table, names, receive)


class _Filtered:
    """An empty table of knft, with a chain ``target``; transactions get the filter."""

    def __init__(self, library: WorkerProcess, family: Family = Family.IPV4) -> None:
        self.recorded = _Recorded(library)
        self.filter = layout.cache_filter(family, ALL_OPTIONS)
        self.table = KernelTable(self.recorded, family, "knft", cache_filter=self.filter)
        where = f"{family.nft} knft"
        library.run(
            declarations_text(layout.declarations(family, ALL_OPTIONS))
            + f"add chain {where} target\nadd chain {where} {self.filter.chain}\n"
        )
        # The filter is used only after the table was seen to have its chain.
        self.contents()

    def commit(self, transaction: Transaction) -> None:
        """Commit a transaction; it must not be sent again without the filter."""
        self.recorded.commands.clear()
        self.table.commit(transaction)
        assert self.recorded.commands == [self.filter.commands(transaction)]

    def contents(self) -> Contents:
        listing = self.table.read()
        assert listing is not None
        return listing.contents


def _parts(text: str, family: Family) -> Iterator[tuple[str | int, ...]]:
    """Yield values of each part of a type."""
    for part in text.split(" . "):
        match part.split():
            case ["ipv4_addr" | "ipv6_addr"] | ["ip" | "ip6", "daddr"]:
                yield ADDRESSES[family]
            case ["inet_proto"]:
                yield ("tcp", "udp", "sctp")
            case _:
                yield (1, 255, 65535)


def _values(container: Container, family: Family) -> tuple[Value, ...]:
    if container.data == "verdict":
        return VERDICTS
    if not container.is_map:
        return (None,)
    parts = list(_parts(container.data, family))
    values: tuple[Any, ...] = parts[0] if len(parts) == 1 else tuple(zip(*parts, strict=False))
    return values


def _elements(family: Family) -> dict[str, dict[Key, Value]]:
    """Return three elements of each set and map that a transaction may change with the filter."""
    return {
        each.name: dict(
            zip(
                itertools.islice(zip(*map(itertools.cycle, _parts(each.key, family)), strict=False), 3),
                itertools.cycle(_values(each, family)),
                strict=False,
            )
        )
        for each in layout.containers(family, ALL_OPTIONS)
        if not each.interval and not each.dynamic_size
    }


@FAMILIES
def test_elements_of_each_set_and_map_are_added_and_removed(library: WorkerProcess, family: Family) -> None:
    node, elements = _Filtered(library, family), _elements(family)
    for name, of_container in elements.items():
        node.commit(Transaction(family.nft, "knft", added={name: of_container}))
    contents = node.contents()
    found = {name for name, _ in contents.members} | {name for name, _ in contents.entries}
    assert found | {name.container for name in contents.arrays} == elements.keys()
    for name, of_container in elements.items():
        node.commit(Transaction(family.nft, "knft", removed={name: tuple(of_container)}))
    assert node.contents() == Contents.empty()


@FAMILIES
def test_elements_of_several_sets_and_maps_are_one_transaction(library: WorkerProcess, family: Family) -> None:
    node, elements = _Filtered(library, family), _elements(family)
    node.commit(Transaction(family.nft, "knft", added=elements))
    before = node.contents()
    keys = {name: tuple(of_container) for name, of_container in elements.items()}
    node.commit(Transaction(family.nft, "knft", removed=keys, added=elements))
    assert node.contents() == before
    node.commit(Transaction(family.nft, "knft", deferred_removals=keys))
    assert node.contents() == Contents.empty()


def test_refused_transaction_changes_nothing_and_has_the_error_without_the_filter(library: WorkerProcess) -> None:
    node = _Filtered(library)
    removed = {names.CLUSTER_IPS: (("10.0.0.2",),)}
    transaction = Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.1",): None}}, removed=removed)
    with pytest.raises(KernelError) as refusal:
        node.table.commit(transaction)
    with pytest.raises(KernelError) as expected:
        KernelTable(library, Family.IPV4, "knft").commit(transaction)
    assert (str(refusal.value), refusal.value.detail) == (str(expected.value), expected.value.detail)
    assert node.contents() == Contents.empty()
    node.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.1",): None}}))


def test_transaction_is_committed_if_the_chain_of_the_filter_is_missing(library: WorkerProcess) -> None:
    """Until knft has written chains, which a full sync does, the filter is refused only once."""
    node = _Filtered(library)
    library.run(f"delete chain ip knft {node.filter.chain}")
    addresses = [(f"10.0.0.{number}",) for number in range(4)]
    for address in addresses[:3]:
        node.table.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {address: None}}))
    assert len(node.recorded.commands) == 1 + 3 + 1  # One has read the table.
    node.table.commit(Transaction("ip", "knft", chains=(Chain(node.filter.chain),)))
    node.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {addresses[3]: None}}))
    assert node.contents().members == {(names.CLUSTER_IPS, address) for address in addresses}


def test_filter_is_used_again_after_a_passing_refusal(library: WorkerProcess) -> None:
    """The kernel may have been short of memory; the chain of the filter exists."""
    node = _Filtered(library)
    node.recorded.refused = 1
    for number in range(2):
        node.table.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {(f"10.0.0.{number}",): None}}))
    assert len(node.recorded.commands) == 1 + 2 + 1  # One has read the table.
    node.table.commit(Transaction("ip", "knft", chains=(Chain("web"),)))
    node.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.2",): None}}))


def test_filter_is_used_after_a_transaction_that_cannot_have_it(library: WorkerProcess) -> None:
    node = _Filtered(library)
    node.table.commit(Transaction("ip", "knft", added={names.POD_CIDRS: {("10.244.0.0/16",): None}}))
    node.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.1",): None}}))


class _RecordedProcess(WorkerProcess):
    """A worker process that records its commands."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    def run(self, commands: str, *, terse: bool = False) -> str:
        self.commands.append(commands)
        return super().run(commands, terse=terse)


def test_running_knft_uses_the_filter_for_counters_too(namespace: Namespace) -> None:
    with namespace.entered(), _RecordedProcess() as library:
        daemon = live_daemon(Config("node-1", service_counters=True), library)
        for name, address in (("web", "10.96.0.10"), ("api", "10.96.0.11")):
            library.commands.clear()
            daemon.handle([ObjectChange(None, item) for item in served(name, address)])
            assert daemon.sync()
    (command,) = library.commands
    assert names.CONNECTIONS in command
    assert '{"list":{"ruleset":{"family":"arp"}}}' in command


def test_filter_is_used_after_the_table_was_replaced(library: WorkerProcess) -> None:
    node = _Filtered(library)
    library.run(f"delete chain ip knft {node.filter.chain}")
    node.contents()
    declared = layout.declarations(Family.IPV4, ALL_OPTIONS)
    node.table.replace(structs.replace(declared, chains=(Chain(node.filter.chain),)))
    node.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.1",): None}}))


@pytest.mark.parametrize("before", ["no table", "an empty table", "a table that was deleted"])
def test_first_sync_sends_nothing_twice(namespace: Namespace, before: str) -> None:
    """Many endpoints are sent before the chain of the filter is created, and libnftables would refuse the filter."""
    with namespace.entered(), _RecordedProcess() as library:
        if before == "an empty table":
            flags = "{ flags owner,persist; }" if CAN_OWN_TABLES else ""
            library.run(f"add table ip knft {flags}\nadd table ip6 knft {flags}")
        daemon = live_daemon(Config("node-1"), library)
        if before == "a table that was deleted":
            assert daemon.sync()
            library.run("delete table ip knft\ndelete table ip6 knft")
            for proxier in daemon._proxiers:
                proxier.invalidate(Invalidation(declarations=True))
        addresses = [f"10.244.{number >> 8}.{number & 255}" for number in range(MAX_ELEMENTS)]
        for number in range(2):
            name = f"web-{number}"
            web, _ = served(name, f"10.96.0.{number + 1}")
            endpoints = endpoint_slice(f"{name}-1", *addresses, service=name, ports=slice_ports("http"))
            daemon.handle([ObjectChange(None, item) for item in (web, endpoints)])
        library.commands.clear()
        assert daemon.sync()
    assert sum('"name":"endpoints-tcp"' in command for command in library.commands) == 2
    assert not any('{"list":' in command for command in library.commands)


class _Unavailable:
    """A library that answers one request and no other, and records them."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def run(self, commands: str, *, terse: bool = False) -> str:
        del terse
        self.requests.append(commands)
        if len(self.requests) == 1:
            return ""
        msg = "no answer"
        raise UnavailableError(msg)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        raise NotImplementedError


def test_transaction_is_not_sent_again_if_the_library_does_not_answer() -> None:
    """It may have been committed."""
    library = _Unavailable()
    cache_filter = layout.cache_filter(Family.IPV4)
    table = KernelTable(library, Family.IPV4, "knft", cache_filter=cache_filter)
    table.commit(Transaction("ip", "knft", chains=(Chain(cache_filter.chain),)))
    with pytest.raises(UnavailableError, match="no answer"):
        table.commit(Transaction("ip", "knft", added={names.CLUSTER_IPS: {("10.0.0.1",): None}}))
    assert ['"list"' in commands for commands in library.requests] == [False, True]


@pytest.mark.parametrize(
    "transaction",
    [
        Transaction("ip", "knft", chains=(Chain("web"),)),
        Transaction("ip", "knft", new_chains=(Chain("web"),)),
        Transaction("ip", "knft", deleted_chains=("web",)),
        Transaction("ip", "knft", added={names.SOURCE_RANGES: {("10.0.0.1", "tcp", 80, "10.0.0.0/8"): None}}),
        Transaction("ip", "knft", removed={names.POD_CIDRS: (("10.0.0.0/8",),)}),
        Transaction("ip", "knft", deferred_removals={names.CLIENTS: (("10.0.0.1", 1, 1),)}),
        Transaction("ip", "knft", added={"of-another-program": {("10.0.0.1",): None}}),
    ],
    ids=["chain", "new chain", "deleted chain", "intervals", "interval", "dynamic set", "unknown set"],
)
def test_other_transactions_have_no_filter(transaction: Transaction) -> None:
    assert layout.cache_filter(Family.IPV4).commands(transaction) is None


def test_chains_and_sets_of_another_program_do_not_make_a_change_slower(library: WorkerProcess) -> None:
    """Nor do the elements of a map, and with libnftables 1.0 other sets of the table, which 1.1 lists."""
    node = _Filtered(library)
    plain = KernelTable(library, Family.IPV4, "knft")
    chains = "".join(f"add chain inet other chain-{number}\n" for number in range(1000))
    # libnftables 1.1 lists sets only.
    sets = "".join(
        f"add set {table} set-{number} {{ type ipv4_addr; }}\n"
        for table in ("inet other", *(["ip knft"] if LIBRARY_VERSION.startswith("1.0") else []))
        for number in range(1000)
    )
    library.run(f"add table inet other\n{chains}{sets}")
    map_elements: dict[Key, Value] = {("10.0.0.1", 80, index): ("10.1.0.1", 80) for index in range(1000)}
    node.table.commit(Transaction("ip", "knft", added={"endpoints-tcp": map_elements}))

    def seconds(table: KernelTable) -> float:
        started = _cpu_seconds(library)
        for number in range(20):
            added: dict[Key, Value] = {("10.0.0.2", 80, number): ("10.1.0.1", 80)}
            table.commit(Transaction("ip", "knft", added={"endpoints-tcp": added}))
            table.commit(Transaction("ip", "knft", removed={"endpoints-tcp": tuple(added)}))
        return _cpu_seconds(library) - started

    # The least of several rounds: other processes make the CPU's caches slower.
    filtered, unfiltered = (min(seconds(table) for _ in range(5)) for table in (node.table, plain))
    assert filtered < unfiltered / 2


def _cpu_seconds(library: WorkerProcess) -> float:
    assert library.pid is not None
    time.sleep(0.02)  # The process also works after its answer, and nothing reports the end of that.
    return process_cpu_seconds(library.pid)
