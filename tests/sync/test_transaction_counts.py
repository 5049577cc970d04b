"""Each kind of change takes as many transactions as docs/design/transaction-phases.md says."""

from pathlib import Path

import pytest

from knft.families import Family
from knft.kernel.table import KernelTable
from tests.support.lab.namespace import Namespace
from tests.support.transaction_counts import CHANGES, DOCUMENT, with_table
from tests.sync.counted_changes import CountedChanges, make_all_changes
from tests.sync.nft_monitor import NftMonitor

WAITING = {
    "last local endpoint removed, policy Local, new sizes",
    "external traffic policy changed to Cluster",
    "internal traffic policy changed to Local",
    "internal traffic policy changed to Cluster",
    "load balancing changed to source-hash",
    "load balancing changed to random",
    "layout changed to wide",
    "layout changed from wide",
}
"""The changes that wait for packets before the cleanup phase. The usual ones must not: a wait can take a second."""


@pytest.mark.kernel
def test_each_change_takes_the_documented_transactions(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions on other tables, such as probes, do not count. ``nft monitor`` reports the same ones."""
    waits: list[KernelTable] = []
    waiting: set[str] = set()
    monkeypatch.setattr(KernelTable, "wait_for_packets", lambda table: waits.append(table))  # noqa: PLW0108 - a method

    def mark(name: str) -> None:
        monitor.mark(name)
        waiting.update({name} if waits else ())
        waits.clear()

    with NftMonitor(namespace, tmp_path) as monitor, CountedChanges(namespace, mark) as changes:
        mark("")
        make_all_changes(changes, namespace)
        monitored = monitor.counts()
    assert changes.counts == {name: dict.fromkeys(Family, counts) for name, counts in CHANGES.items()}
    assert monitored == {name: len(Family) * sum(counts) for name, counts in CHANGES.items()}
    assert waiting - {""} == WAITING


def test_packets_meet_one_transaction_of_each_change() -> None:
    assert {name for name, counts in CHANGES.items() if counts.visible != 1} == {"restart, nothing changed"}


def test_document_has_the_counted_transactions() -> None:
    assert with_table(DOCUMENT.read_text()) == DOCUMENT.read_text()
