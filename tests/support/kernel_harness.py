"""KernelHarness: knft's trackers, planner, renderer and writer on a real kernel, with validated transactions."""

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import knft.nft.codec
from knft.config import Config
from knft.errors import KernelError, LibraryDiedError
from knft.families import Family
from knft.kernel.table import KernelTable
from knft.model.objects import KubeObject, ObjectChange
from knft.nft.codec.listing import TableListing
from knft.nft.codec.tables import transaction_json
from knft.nft.objects import Contents, Key, NamedObject, Table, Value
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import TABLE
from knft.source.decode import KINDS
from knft.sync.daemon import Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from knft.sync.table_interface import TableInterface
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in
from tests.support.schema_validator import schema_validator

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48"), service_cidrs=("10.96.0.0/16",))
_SCHEMA = json.loads(Path(knft.nft.codec.__path__[0], "transaction.schema.json").read_text())
_VALIDATOR = schema_validator(_SCHEMA)


def check_schema(document: bytes) -> None:
    """Raise ValidationError if a transaction does not match knft's schema."""
    _VALIDATOR.validate(json.loads(document))


CRASH_MESSAGE = "the library crashed for the test"


class CheckedTable:
    """A port that validates each transaction against the schema, keeps the last ones, and passes them on.

    It can also fail: it refuses commits (``refused_commits``), carries them out and reports a failure
    (``misreported_commits``), refuses reads (``refused_reads``), or raises LibraryDiedError before or after a commit
    (``crashes_before_commit``, ``crashes_after_commit``), each that many times. ``on_commit`` is called with each
    transaction, and ``on_delete`` with objects to delete, before they are passed on.
    """

    def __init__(self, inner: TableInterface) -> None:
        self._inner = inner
        # Limited, because a soak test sends a hundred thousand.
        self.transactions: deque[Transaction] = deque(maxlen=100)
        self.reads = 0
        self.refused_commits = 0
        self.misreported_commits = 0
        self.refused_reads = 0
        self.crashes_before_commit = 0
        self.crashes_after_commit = 0
        self.on_commit: Callable[[Transaction], None] = lambda _: None
        self.on_delete: Callable[[Sequence[NamedObject]], None] = lambda _: None

    def stop_failing(self) -> None:
        """Stop all failures."""
        self.refused_commits = self.misreported_commits = self.refused_reads = self.crashes_before_commit = (
            self.crashes_after_commit
        ) = 0
        self.on_commit = lambda _: None
        self.on_delete = lambda _: None

    def read(self) -> TableListing | None:
        self.reads += 1
        if self.refused_reads:
            self.refused_reads -= 1
            msg = "read refused for the test"
            raise KernelError(msg)
        return self._inner.read()

    def dynamic_elements(self) -> dict[str, dict[Key, Value]]:
        return self._inner.dynamic_elements()

    def ensure_working(self) -> None:
        self._inner.ensure_working()

    def declare(self, table: Table) -> None:
        self._inner.declare(table)

    def create(self, declared: Table, first: Transaction) -> None:
        self._commit(first, lambda: self._inner.create(declared, first))

    def replace(self, table: Table) -> None:
        self._maybe_refuse()
        self._inner.replace(table)

    def _maybe_refuse(self) -> None:
        if self.refused_commits:
            self.refused_commits -= 1
            msg = "refused for the test"
            raise KernelError(msg)

    def delete(self, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()) -> None:
        self.on_delete(objects)
        self._inner.delete(objects, flushed_chains)

    def delete_newer_sets(self, kept: Collection[str]) -> bool:
        return self._inner.delete_newer_sets(kept)

    def wait_for_packets(self) -> None:
        self._inner.wait_for_packets()

    def commit(self, transaction: Transaction) -> None:
        self._commit(transaction, lambda: self._inner.commit(transaction))

    def _commit(self, transaction: Transaction, send: Callable[[], None]) -> None:
        check_schema(transaction_json(transaction))
        self._maybe_refuse()
        if self.crashes_before_commit and not transaction.is_empty:
            self.crashes_before_commit -= 1
            raise LibraryDiedError(CRASH_MESSAGE)
        self.on_commit(transaction)
        send()
        self.transactions.append(transaction)
        if self.crashes_after_commit and not transaction.is_empty:
            self.crashes_after_commit -= 1
            raise LibraryDiedError(CRASH_MESSAGE)
        if self.misreported_commits:
            self.misreported_commits -= 1
            msg = "committed, but reported as failed for the test"
            raise KernelError(msg)


class TextTable(KernelTable):
    """A table whose listing is available as text."""

    def text(self) -> str | None:
        """Return the listing as libnftables prints it, None if there is no table."""
        try:
            return self._library.run(f"list table {self._family.nft} {self._name}")
        except KernelError as error:
            if "No such file or directory" not in error.detail:
                raise
            return None


FOREIGN_OBJECTS = """
    add map ip knft alien-map { type ipv4_addr : inet_service; elements = { 10.0.0.1 : 80 } }
    add set ip knft alien-set { type inet_service; elements = { 80, 443 } }
"""
"""Objects in knft's table that knft did not create."""


def decode_manifest(item: dict[str, Any]) -> KubeObject:
    """Return a manifest as knft's object."""
    return msgspec.convert(item, KINDS[item["apiVersion"], item["kind"]])


class KernelHarness:
    """Proxiers of both families: call ``apply`` with objects, then ``sync``. Without ``clock``, time stands still."""

    def __init__(
        self,
        namespace: Namespace,
        config: Config = CONFIG,
        clock: Callable[[], float] = lambda: 0.0,
        table: Callable[..., KernelTable] = KernelTable,
    ) -> None:
        self.namespace = namespace
        library = library_in(namespace)
        self.tables = {
            family: table(library, family, TABLE, cache_filter=layout.cache_filter(family, config)) for family in Family
        }
        self.checked_tables = {family: CheckedTable(table) for family, table in self.tables.items()}
        start = datetime(2026, 1, 1, tzinfo=UTC)
        states = {family: ServiceState(family, config.node_name, start) for family in Family}
        self.proxiers = {
            family: Proxier(family, config, states[family], self.checked_tables[family], clock) for family in Family
        }
        self.dispatcher = Dispatcher(config, tuple(states.values()))
        self.daemon = Daemon(tuple(self.proxiers.values()), self.dispatcher)
        self.dispatcher.refresh_node()
        self._objects: dict[tuple[str, str], KubeObject] = {}

    def apply(self, *items: dict[str, Any]) -> None:
        """Create or update objects."""
        self.change((item["kind"], item["metadata"]["name"], decode_manifest(item)) for item in items)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.change([(kind, name, None)])

    def change(self, changes: Iterable[tuple[str, str, KubeObject | None]]) -> None:
        """Report changed objects to the trackers; None for a deleted one."""
        for kind, name, current in changes:
            previous = self._objects.pop((kind, name), None)
            if current is not None:
                self._objects[kind, name] = current
            self.dispatcher.handle([ObjectChange(previous, current)])

    def sync(self) -> dict[Family, SyncReport]:
        """Sync both families until all changes are in force; return the last reports."""
        reports = {family: proxier.sync() for family, proxier in self.proxiers.items()}
        return reports if all(report.is_complete for report in reports.values()) else self.sync()

    def last_transaction(self, family: Family = Family.IPV4) -> Transaction:
        """Return the last transaction of a family."""
        return self.checked_tables[family].transactions[-1]

    def listing(self, family: Family = Family.IPV4) -> TableListing:
        """Return the kernel's table."""
        listing = self.tables[family].read()
        assert listing is not None
        return listing

    @property
    def objects(self) -> dict[tuple[str, str], KubeObject]:
        """The current objects by kind and name."""
        return dict(self._objects)


def harness_with_service(namespace: Namespace) -> KernelHarness:
    """Return a synced harness with one Service with a NodePort and three endpoints."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", node_port=30080), *slices("web", range(11, 14)))
    harness.sync()
    return harness


def restarted(harness: KernelHarness, config: Config = CONFIG) -> KernelHarness:
    """Return a new process on the same kernel with the same objects, before its first sync."""
    second = KernelHarness(harness.namespace, config)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


def contents_of_fresh_start(harness: KernelHarness) -> Contents:
    """Return the contents that a fresh process creates from the same objects on an empty kernel."""
    namespace = Namespace.create("fresh")
    with namespace.entered():
        fresh = KernelHarness(namespace)
        fresh.change((kind, name, item) for (kind, name), item in harness.objects.items())
        fresh.sync()
        listing = fresh.listing()
    namespace.close()
    return listing.contents


def sorted_words(listing: str) -> list[str]:
    """Return the words of a listing, sorted: a replacement changes the order of chains and elements."""
    return sorted(listing.replace(",", " ").split())


def element_operations(transaction: Transaction) -> int:
    """Return how many elements a transaction removes and adds."""
    return transaction.added_count + transaction.removed_count


def service(name: str, number: int = 10, *, node_port: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a dual-stack Service with one port."""
    port = {"name": "http", "port": 80} | ({"nodePort": node_port} if node_port else {})
    addresses = [f"10.96.{number // 256}.{number % 256}", f"fd00:10:96::{number}"]
    families = {"clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilies": ["IPv4", "IPv6"]}
    kind = {"type": "NodePort"} if node_port else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [port], **families, **kind, **spec},
    }


def slices(name: str, numbers: Iterable[int], *, local: Iterable[int] = (), port: int = 8080) -> list[dict[str, Any]]:
    """Return the slices of a Service in both families; endpoints whose numbers are in ``local`` are on this node."""
    local_numbers, numbers = set(local), list(numbers)
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-{family.lower()}", "labels": {"kubernetes.io/service-name": name}},
            "addressType": family,
            "ports": [{"name": "http", "port": port}],
            "endpoints": [
                {"addresses": [address(number)], "nodeName": "node-1" if number in local_numbers else "node-2"}
                for number in numbers
            ],
        }
        for family, address in (
            ("IPv4", _pod_ipv4),
            ("IPv6", "fd00:10:244:2::{}".format),
        )
    ]


def _pod_ipv4(number: int) -> str:
    return f"10.244.{2 + number // 256}.{number % 256}"
