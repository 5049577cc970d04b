"""MemoryHarness: the trackers and the Proxier of one family, on a table in memory."""

from datetime import UTC, datetime
from typing import Any

from knft.config import Config
from knft.families import Family
from knft.model.objects import KubeObject, ObjectChange
from knft.nft.transaction import Transaction
from knft.sync.dispatch import Dispatcher
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.support import equivalence
from tests.support.kernel_harness import CONFIG, decode_manifest, service, slices
from tests.support.memory_table import MemoryTable


class MemoryHarness:
    """The IPv4 Proxier on a MemoryTable; ``now`` is the time in seconds."""

    def __init__(self, table: MemoryTable | None = None, config: Config = CONFIG, now: float = 100.0) -> None:
        """Start without objects, on an empty table or on the one that an earlier process left."""
        self.now = now
        self.config = config
        self.table = table if table is not None else MemoryTable(Family.IPV4)
        self.state = ServiceState(Family.IPV4, config.node_name, datetime(2026, 1, 1, tzinfo=UTC))
        self.proxier = Proxier(Family.IPV4, config, self.state, self.table, lambda: self.now)
        self.dispatcher = Dispatcher(config, (self.state,))
        self.dispatcher.refresh_node()
        self.objects: dict[tuple[str, str], KubeObject] = {}

    def apply(self, *items: dict[str, Any]) -> None:
        """Create or update objects."""
        for item in items:
            self.change(item["kind"], item["metadata"]["name"], decode_manifest(item))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.change(kind, name, None)

    def change(self, kind: str, name: str, current: KubeObject | None) -> None:
        """Report a changed object to the trackers; None for a deleted one."""
        previous = self.objects.pop((kind, name), None)
        if current is not None:
            self.objects[kind, name] = current
        self.dispatcher.handle([ObjectChange(previous, current)])

    def sync(self) -> SyncReport:
        """Sync the family."""
        return self.proxier.sync()

    @property
    def last_transaction(self) -> Transaction:
        """The last accepted transaction."""
        return self.table.transactions[-1]

    def restarted(self, config: Config | None = None) -> "MemoryHarness":
        """Return a new process on the same table with the same objects, before its first sync."""
        second = MemoryHarness(self.table, config or self.config, self.now)
        for (kind, name), item in self.objects.items():
            second.change(kind, name, item)
        return second

    def differences(self) -> list[str]:
        """Return a line for each fact in which the table differs from what a fresh process would render."""
        return equivalence.difference(self.fresh_facts(), self.facts())

    def facts(self) -> equivalence.Facts:
        """Return the facts of the table."""
        return equivalence.facts(self.table.listing(), Family.IPV4, self.config)

    def fresh_facts(self) -> equivalence.Facts:
        """Return the facts of the table that a fresh process would render."""
        fresh = equivalence.rendered(self.objects.values(), None, self.config)[Family.IPV4]
        return equivalence.facts(fresh, Family.IPV4, self.config)


def synced_harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    harness = MemoryHarness()
    harness.apply(
        service("web", node_port=30080),
        *slices("web", [11, 12, 13], local=[12]),
        service("sticky", 30, sessionAffinity="ClientIP"),
        *slices("sticky", [21, 22], local=[21]),
    )
    harness.sync()
    return harness
