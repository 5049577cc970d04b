"""A FlowCleaner with real syncs, and counters of its netlink requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from knft.config import Config
from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.kernel.conntrack import FlowTable, open_flow_table
from knft.sync import flow_cleaner
from knft.sync.flow_cleaner import FlowCleaner
from tests.support.kernel_harness import CONFIG, KernelHarness


class RecordingCleaner:
    """A FlowCleaner; ``deletions`` records its callbacks: family and number of deleted flows."""

    def __init__(self, harness: KernelHarness, config: Config = CONFIG, *, grace: float = 0.0, **clocks: Any) -> None:
        """Create the cleaner, with the system's clocks unless ``clocks`` replaces them."""
        self.harness = harness
        self.deletions: list[tuple[Family, int]] = []
        self.cleaner = FlowCleaner(config, local_addresses, self._record, grace=grace, **clocks)

    def _record(self, family: Family, seconds: float, count: int) -> None:
        assert seconds >= 0
        self.deletions.append((family, count))

    def sync(self) -> None:
        """Sync both families and report it to the cleaner."""
        for family, proxier in self.harness.proxiers.items():
            self.cleaner.sync_started(family)
            self.cleaner.sync_succeeded(proxier.sync(), proxier.state)

    def run_passes(self) -> int:
        """Check the flows of all families that are due, as the thread does; return how many were deleted."""
        return sum(self.cleaner.run_pass(family) for family in self.cleaner._start_due_passes())

    def run_pass(self, family: Family) -> None:
        """Check the flows of one family, and log an error, as the thread does."""
        self.cleaner._errors.run(family, self.cleaner.run_pass)


class NetlinkCounter:
    """Counts netlink requests of the cleaners' flow tables."""

    def __init__(self) -> None:
        """Start at zero."""
        self.tables: list[FlowTable] = []

    @property
    def dumps(self) -> int:
        """The number of dumps."""
        return sum(table.dumps for table in self.tables)

    @property
    def deletions(self) -> int:
        """The number of requested deletions."""
        return sum(table.deletions for table in self.tables)


def count_netlink_requests(monkeypatch: pytest.MonkeyPatch) -> NetlinkCounter:
    """Count the netlink requests of all cleaners from now on."""
    counter = NetlinkCounter()

    @contextmanager
    def open_and_record(family: int) -> Iterator[FlowTable]:
        with open_flow_table(family) as table:
            counter.tables.append(table)
            yield table

    monkeypatch.setattr(flow_cleaner, "open_flow_table", open_and_record)
    return counter
