"""A transaction with many new endpoints is sent in pieces before the verdicts."""

import pytest

from knft.nft.expressions import Goto
from knft.nft.objects import Entry, Key, Value
from knft.nft.transaction import Transaction

VERDICTS: dict[Key, Value] = {("10.96.0.1", "tcp", 80): Entry(Goto("pool-tcp-3"))}


def _transaction(count: int, *, replaced: int = 0) -> Transaction:
    """Return a transaction with one new Service, whose last ``replaced`` endpoints replace others."""
    endpoints: dict[Key, Value] = {("10.96.0.1", 80, index): (f"10.244.0.{index}", 8080) for index in range(count)}
    removed = {"endpoints-tcp": tuple(endpoints)[count - replaced :]} if replaced else {}
    return Transaction("ip", "knft", removed=removed, added={"service-ips": VERDICTS, "endpoints-tcp": endpoints})


def test_pieces_have_at_most_the_given_size() -> None:
    transaction = _transaction(10)

    pieces = list(transaction.endpoint_phase(4))

    assert [piece.added_count for piece in pieces] == [4, 4, 2]
    together = {key: value for piece in pieces for key, value in piece.added["endpoints-tcp"].items()}
    assert together == transaction.added["endpoints-tcp"]
    assert transaction.without_early_endpoints(4).added == {"service-ips": VERDICTS}


def test_replaced_endpoints_stay_in_the_main_phase() -> None:
    """Their removal and addition must be one transaction."""
    transaction = _transaction(10, replaced=3)

    pieces = list(transaction.endpoint_phase(4))

    assert [piece.added_count for piece in pieces] == [4, 3]
    assert not any(piece.removed for piece in pieces)
    main = transaction.without_early_endpoints(4)
    assert main.added["endpoints-tcp"].keys() == set(main.removed["endpoints-tcp"])


@pytest.mark.parametrize("count", [0, 4])
def test_small_transactions_are_sent_as_a_whole(count: int) -> None:
    transaction = _transaction(count)
    assert list(transaction.endpoint_phase(4)) == []
    assert transaction.without_early_endpoints(4) is transaction
