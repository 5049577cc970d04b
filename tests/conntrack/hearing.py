"""A FlowCleaner that hears of real syncs, and whose requests to the kernel can be counted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from knft.config import Config
from knft.kernel.addresses import local_addresses
from knft.kernel.conntrack import FlowTable, flow_table
from knft.model.names import Family
from knft.sync import conntrack
from knft.sync.conntrack import FlowCleaner
from tests.kernel.harness import CONFIG, KernelHarness


class Hearing:
    """``told`` are what the callback was told: family and how many flows were forgotten."""

    def __init__(
        self, harness: KernelHarness, config: Config = CONFIG, *, grace: float = 0.0, **clocks: Callable[[], float]
    ) -> None:
        """Hear of this process's syncs from now on, by the cleaner's clocks where none are given."""
        self._harness = harness
        self.told: list[tuple[Family, int]] = []
        self.cleaner = FlowCleaner(config, local_addresses, self._tell, grace=grace, **clocks)

    def _tell(self, family: Family, seconds: float, count: int) -> None:
        assert seconds >= 0
        self.told.append((family, count))

    def sync(self) -> None:
        """Sync both families, and be told of it."""
        for family, proxier in self._harness.proxiers.items():
            self.cleaner.begun(family)
            self.cleaner.synced(proxier.sync(), proxier.state)

    def reconcile(self) -> int:
        """Look at the flows that are due, as the thread does; return how many were forgotten."""
        return sum(self.cleaner.reconcile(family) for family in self.cleaner._take_due())


class Counted:
    """Messages to the kernel, by kind."""

    def __init__(self) -> None:
        """Count from zero."""
        self.tables: list[FlowTable] = []

    @property
    def listings(self) -> int:
        """How often flows were listed."""
        return sum(table.listings for table in self.tables)

    @property
    def deletions(self) -> int:
        """How many flows were asked to be deleted."""
        return sum(table.deletions for table in self.tables)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count what cleaners ask of the kernel from now on."""
    found = Counted()

    @contextmanager
    def opened(family: int) -> Iterator[FlowTable]:
        with flow_table(family) as table:
            found.tables.append(table)
            yield table

    monkeypatch.setattr(conntrack, "flow_table", opened)
    return found
