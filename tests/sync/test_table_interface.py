"""A recorder returns the transaction of a first sync, for ``knft render`` and ``knft diff``."""

import pytest

from knft.config import Config
from knft.families import Family
from knft.nft.objects import Table
from knft.nft.transaction import Transaction
from knft.sync.assemble import rendering_daemon
from tests.bench.cluster import Cluster, Shape
from tests.bench.manifests import first_changes


def _first_sync() -> tuple[Table, Transaction]:
    daemon, recorders = rendering_daemon(Config("node-1"))
    daemon.handle(first_changes(Cluster(Shape("test", services=10, endpoints=3))))
    daemon.sync()
    return recorders[Family.IPV4].first_sync()


def test_large_first_sync_is_recorded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its endpoints are sent in pieces before the verdicts."""
    whole = _first_sync()
    monkeypatch.setattr("knft.sync.table_writer.MAX_ELEMENTS", 8)
    assert _first_sync() == whole
    assert sum(map(len, whole[1].added.values())) > 10 * 3
