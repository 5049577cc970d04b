"""KernelHarness: the product's own stages on a real kernel, with every transaction held against the schema."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

import knft.nft.codec
from knft.config import Config
from knft.errors import KernelError, LibraryDiedError
from knft.kernel.table import KernelTable
from knft.model.names import Family
from knft.model.objects import Change, KubeObject
from knft.nft.codec.listing import Listing
from knft.nft.codec.tables import transaction_json
from knft.nft.objects import Contents, Table
from knft.nft.transaction import Transaction
from knft.render.names import NFT_FAMILIES, TABLE
from knft.source.decode import KINDS
from knft.sync.daemon import Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.ports import TablePort
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.kernel.nft_process import library_in
from tests.support.lab.namespace import Namespace

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48"), service_cidrs=("10.96.0.0/16",))
_SCHEMA = json.loads(Path(knft.nft.codec.__path__[0], "transaction.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(_SCHEMA, format_checker=jsonschema.FormatChecker())


def check_schema(document: bytes) -> None:
    """Raise ValidationError where a transaction has a form that knft's schema does not know."""
    transaction = json.loads(document)
    VALIDATOR.validate({**transaction, "nftables": []})
    for command in transaction["nftables"]:
        written = json.dumps(command)
        # Elements are different every time: remembering them would only fill memory.
        (_check_command if '"element"' in written else _check_command_once)(written)


def _check_command(command: str) -> None:
    VALIDATOR.validate({"nftables": [json.loads(command)]})


# The same hundreds of pool chains are in the first transaction of every test; to check them takes half a second. Not
# many more: sticky Services' chains have numbers, and filled 16 000 places (5 MiB) in the first 40 000 steps of a soak.
_check_command_once = lru_cache(maxsize=1 << 12)(_check_command)


DIED = "the library died for the test"


class CheckedPort:
    """A port that holds every transaction against the schema, keeps it for a while, and hands it on.

    Or it fails: so many commits are refused (``refuse``) or carried out and then said to have failed (``deceive``), and
    so many readings are refused (``refuse_reads``); or the library dies of a commit, before it is carried out or after
    (``die_before``, ``die_after``). ``meddle`` is called with each transaction before it is handed on.
    """

    def __init__(self, inner: TablePort) -> None:
        self._inner = inner
        # Not all: a soak sends a hundred thousand.
        self.sent: deque[Transaction] = deque(maxlen=100)
        self.reads = 0
        self.refuse = 0
        self.deceive = 0
        self.refuse_reads = 0
        self.die_before = 0
        self.die_after = 0
        self.meddle: Callable[[Transaction], None] = lambda _: None

    def heal(self) -> None:
        """Fail no longer."""
        self.refuse = self.deceive = self.refuse_reads = self.die_before = self.die_after = 0
        self.meddle = lambda _: None

    def read(self) -> Listing | None:
        self.reads += 1
        if self.refuse_reads:
            self.refuse_reads -= 1
            msg = "not read for the test"
            raise KernelError(msg)
        return self._inner.read()

    def ensure_working(self) -> None:
        self._inner.ensure_working()

    def declare(self, table: Table) -> None:
        self._inner.declare(table)

    def replace(self, table: Table) -> None:
        self._refuse()
        self._inner.replace(table)

    def _refuse(self) -> None:
        if self.refuse:
            self.refuse -= 1
            msg = "refused for the test"
            raise KernelError(msg)

    def commit(self, transaction: Transaction) -> None:
        check_schema(transaction_json(transaction))
        self._refuse()
        if self.die_before and not transaction.is_empty:
            self.die_before -= 1
            raise LibraryDiedError(DIED)
        self.meddle(transaction)
        self._inner.commit(transaction)
        self.sent.append(transaction)
        if self.die_after and not transaction.is_empty:
            self.die_after -= 1
            raise LibraryDiedError(DIED)
        if self.deceive:
            self.deceive -= 1
            msg = "committed, and reported as failed for the test"
            raise KernelError(msg)


class ReadableTable(KernelTable):
    """A table whose listing can be had as it is printed."""

    def text(self) -> str | None:
        """Return the listing as libnftables prints it, None where there is no table."""
        try:
            return self._library.run(f"list table {self._family} {self._name}")
        except KernelError as error:
            if "No such file or directory" not in error.detail:
                raise
            return None


ALIEN = """
    add map ip knft alien-map { type ipv4_addr : inet_service; elements = { 10.0.0.1 : 80 } }
    add set ip knft alien-set { type inet_service; elements = { 80, 443 } }
"""
"""What is not knft's, in its table."""


def convert(item: dict[str, Any]) -> KubeObject:
    """Return a manifest as the product's object."""
    return msgspec.convert(item, KINDS[item["apiVersion"], item["kind"]])


class KernelHarness:
    """Both families' Proxiers; ``apply`` objects, then ``sync``."""

    def __init__(
        self,
        namespace: Namespace,
        config: Config = CONFIG,
        timer: Callable[[], float] = time.perf_counter,
        table: type[KernelTable] = KernelTable,
    ) -> None:
        self.namespace = namespace
        library = library_in(namespace)
        self.tables = {family: table(library, NFT_FAMILIES[family], TABLE) for family in Family}
        self.ports = {family: CheckedPort(table) for family, table in self.tables.items()}
        start = datetime(2026, 1, 1, tzinfo=UTC)
        states = {family: ServiceState(family, config.node_name, start) for family in Family}
        self.proxiers = {
            family: Proxier(family, config, states[family], self.ports[family], timer) for family in Family
        }
        self.dispatcher = Dispatcher(config, tuple(states.values()))
        self.daemon = Daemon(tuple(self.proxiers.values()), self.dispatcher)
        self.dispatcher.refresh_node()
        self._objects: dict[tuple[str, str], KubeObject] = {}

    def apply(self, *items: dict[str, Any]) -> None:
        """Make or change objects."""
        self.change((item["kind"], item["metadata"]["name"], convert(item)) for item in items)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.change([(kind, name, None)])

    def change(self, changes: Iterable[tuple[str, str, KubeObject | None]]) -> None:
        """Tell the trackers what an object is now; None: gone."""
        for kind, name, current in changes:
            previous = self._objects.pop((kind, name), None)
            if current is not None:
                self._objects[kind, name] = current
            self.dispatcher.handle([Change(previous, current)])

    def sync(self) -> dict[Family, SyncReport]:
        """Sync both families."""
        return {family: proxier.sync() for family, proxier in self.proxiers.items()}

    def last(self, family: Family = Family.IPV4) -> Transaction:
        """Return the last transaction of a family."""
        return self.ports[family].sent[-1]

    def held(self, family: Family = Family.IPV4) -> Listing:
        """Return what the kernel holds."""
        listing = self.tables[family].read()
        assert listing is not None
        return listing

    @property
    def objects(self) -> dict[tuple[str, str], KubeObject]:
        """What was applied and not deleted, by kind and name."""
        return dict(self._objects)


def filled(namespace: Namespace) -> KernelHarness:
    """Return a process that serves one Service with a NodePort and three endpoints."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", node_port=30080), *slices("web", range(11, 14)))
    harness.sync()
    return harness


def restarted(harness: KernelHarness, config: Config = CONFIG) -> KernelHarness:
    """Return a new process on the same kernel, that has been told of the same objects, not yet synced."""
    second = KernelHarness(harness.namespace, config)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


def held_by_fresh_start(harness: KernelHarness) -> Contents:
    """Return what a first process makes of the same objects, on a kernel of its own."""
    namespace = Namespace.create("fresh")
    with namespace.entered():
        fresh = KernelHarness(namespace)
        fresh.change((kind, name, item) for (kind, name), item in harness.objects.items())
        fresh.sync()
        held = fresh.held()
    namespace.close()
    return held.contents


def words(listing: str) -> list[str]:
    """Return what a listing says, without the order of chains and elements, which is any after a replacement."""
    return sorted(listing.replace(",", " ").split())


def operations(transaction: Transaction) -> int:
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
    here, numbers = set(local), list(numbers)
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-{family.lower()}", "labels": {"kubernetes.io/service-name": name}},
            "addressType": family,
            "ports": [{"name": "http", "port": port}],
            "endpoints": [
                {"addresses": [address(number)], "nodeName": "node-1" if number in here else "node-2"}
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
