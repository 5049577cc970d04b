"""A recorder returns the transaction of a first sync, for ``knft render`` and ``knft diff``."""

import pytest

from knft.config import Config
from knft.families import Family
from knft.nft.objects import Chain, Table
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.sync.assemble import rendering_daemon
from knft.sync.table_interface import TransactionRecorder
from tests.bench.cluster import Cluster, Shape
from tests.bench.manifests import first_changes


def _first_sync() -> tuple[tuple[Table, Transaction], int]:
    """Return what is recorded, and the number of transactions."""
    daemon, recorders = rendering_daemon(Config("node-1"))
    daemon.handle(first_changes(Cluster(Shape("test", services=10, endpoints=3))))
    daemon.sync()
    recorder = recorders[Family.IPV4]
    return recorder.first_sync(), len(recorder.transactions)


def test_large_first_sync_is_recorded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its endpoints are sent in pieces before the verdicts."""
    whole, number_of_transactions = _first_sync()
    assert number_of_transactions == 1
    for module in ("prepare", "table_writer"):
        monkeypatch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", 8)
    recorded, number_of_transactions = _first_sync()
    assert number_of_transactions > 10 * 3 / 8
    assert recorded[0] == whole[0]
    assert recorded[1].added == whole[1].added
    assert set(_created(recorded[1])) == set(_created(whole[1]))


def _created(transaction: Transaction) -> list[Chain]:
    """Return all chains with rules, in whichever phase they were created."""
    return [*transaction.new_chains, *transaction.chains]


def test_nothing_was_recorded_before_the_first_sync() -> None:
    recorder = TransactionRecorder()
    with pytest.raises(LookupError):
        recorder.first_sync()
    recorder.declare(layout.declarations(Family.IPV4))
    with pytest.raises(LookupError):
        recorder.first_sync()
