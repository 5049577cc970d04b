"""A transaction with many elements is sent in pieces: new endpoints before the verdicts, removed ones after them."""

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

    endpoints, main = transaction.split_endpoints(4)
    pieces = list(endpoints.addition_pieces(4))

    assert [piece.added_count for piece in pieces] == [4, 4, 2]
    together = {key: value for piece in pieces for key, value in piece.added["endpoints-tcp"].items()}
    assert together == transaction.added["endpoints-tcp"]
    assert main.added == {"service-ips": VERDICTS}


def test_elements_of_given_sets_are_sent_with_the_endpoints() -> None:
    members: dict[Key, Value] = {("10.244.0.1",): None, ("10.244.0.2",): None}
    added = {"service-ips": VERDICTS, "hairpin-connections": members, "cluster-ips": members}

    endpoints, main = Transaction("ip", "knft", added=added).split_endpoints(1, ("hairpin-connections",))

    assert endpoints.added == {"hairpin-connections": members}
    assert main.added == {"service-ips": VERDICTS, "cluster-ips": members}


def test_endpoint_ids_are_sent_with_the_endpoints() -> None:
    """Before a verdict leads to rules that look up an ID."""
    ids: dict[Key, Value] = {("10.96.0.1", 80, index): 1000 + index for index in range(10)}
    endpoints = _transaction(10).added["endpoints-tcp"]
    added = {"service-ips": VERDICTS, "endpoints-tcp": endpoints, "endpoint-ids-tcp": ids}
    removed = {"endpoint-ids-tcp": (("10.96.0.1", 80, 9),)}

    early, main = Transaction("ip", "knft", added=added, removed=removed).split_endpoints(4)

    assert early.added == {
        "endpoints-tcp": endpoints,
        "endpoint-ids-tcp": {key: number for key, number in ids.items() if key[-1] != 9},
    }
    assert main.added == {"service-ips": VERDICTS, "endpoint-ids-tcp": {("10.96.0.1", 80, 9): 1009}}
    assert main.removed == removed


def test_replaced_endpoints_stay_in_the_main_phase() -> None:
    """Their removal and addition must be one transaction."""
    transaction = _transaction(10, replaced=3)

    endpoints, main = transaction.split_endpoints(4)

    assert endpoints.added_count == 7
    assert not endpoints.removed
    assert main.added["endpoints-tcp"].keys() == set(main.removed["endpoints-tcp"])


@pytest.mark.parametrize("count", [0, 4])
def test_small_transactions_are_sent_as_a_whole(count: int) -> None:
    transaction = _transaction(count)
    endpoints, main = transaction.split_endpoints(4)
    assert endpoints.is_empty
    assert main is transaction


def test_deferred_removals_are_sent_in_pieces() -> None:
    endpoints: tuple[Key, ...] = tuple(("10.96.0.1", 80, index) for index in range(5))
    hairpin: tuple[Key, ...] = (("10.244.0.1",), ("10.244.0.2",))
    transaction = Transaction(
        "ip", "knft", deferred_removals={"endpoints-tcp": endpoints, "hairpin-connections": hairpin}
    )

    assert [piece.removed for piece in transaction.cleanup_phase(4)] == [
        {"endpoints-tcp": endpoints[:4]},
        {"endpoints-tcp": endpoints[4:], "hairpin-connections": hairpin},
    ]
    assert _transaction(1).cleanup_phase(4) == []
