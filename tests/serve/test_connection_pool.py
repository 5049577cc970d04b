"""Which connections are closed when clients open too many, or hold too much memory."""

import random

import pytest
from msgspec import Struct

from knft.serve import connection_pool
from knft.serve.connection_pool import Client, ConnectionPool


class FakeConnection(Struct, eq=False):
    """A connection that records that it was aborted."""

    client: Client
    held_bytes: int = 0
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


def opened(pool: ConnectionPool, address: str, server: str = "health server", count: int = 1) -> list[FakeConnection]:
    connections = [FakeConnection((server, address)) for _ in range(count)]
    for connection in connections:
        pool.add(connection)
    return connections


def test_client_with_the_most_connections_loses_its_oldest() -> None:
    pool = ConnectionPool(10)
    (probe,) = opened(pool, "192.0.2.1")
    many = opened(pool, "192.0.2.2", count=5)
    few = opened(pool, "192.0.2.2", "metrics server", count=4)
    more = opened(pool, "192.0.2.3", count=3)
    assert [connection.is_aborted for connection in many] == [True, True, False, False, False]
    assert few[0].is_aborted
    assert not any(connection.is_aborted for connection in (probe, *few[1:], *more))
    assert len(pool) == 10


def test_client_that_holds_the_most_memory_loses_its_oldest_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_HELD_BYTES", 100)
    pool = ConnectionPool(100)
    (scraper,) = opened(pool, "192.0.2.1")
    pool.hold_bytes(scraper, 40)
    idle, *slow = opened(pool, "192.0.2.2", count=7)
    for connection in slow:
        pool.hold_bytes(connection, 11)
    assert [connection.is_aborted for connection in (scraper, idle, *slow)] == [False, False, True, *[False] * 5]
    pool.hold_bytes(slow[0], 1000)  # it is closed already
    pool.hold_bytes(scraper, 0)
    pool.hold_bytes(slow[1], 50)
    assert not slow[1].is_aborted


def test_counts_stay_correct() -> None:
    draw = random.Random(13)  # noqa: S311 - no cryptography
    pool = ConnectionPool(40)
    kept: list[FakeConnection] = []
    for _ in range(5_000):
        if kept and draw.random() < 0.4:
            pool.remove(kept.pop(draw.randrange(len(kept))))
        else:
            kept += opened(pool, f"192.0.2.{draw.randrange(8)}")
            pool.hold_bytes(kept[-1], draw.randrange(10))
        kept = [connection for connection in kept if not connection.is_aborted]
        assert len(pool) == len(kept) <= 40
        counts = [sum(other.client == connection.client for other in kept) for connection in kept]
        assert pool._highest_count == max(counts, default=0)
        assert pool._all_held_bytes == sum(connection.held_bytes for connection in kept)
    for connection in kept:
        pool.remove(connection)
        pool.remove(connection)
    assert not pool._connections
    assert not pool._clients_by_count
    assert not pool._held_bytes


def test_oldest_connections_of_a_limited_client_are_closed() -> None:
    pool = ConnectionPool(10)
    limited, other = opened(pool, "192.0.2.1", count=5), opened(pool, "192.0.2.2", count=3)
    pool.limit_client(limited[0].client, 2)
    assert [connection.is_aborted for connection in (*limited, *other)] == [True] * 3 + [False] * 5
    pool.limit_client(limited[0].client, 0)
    pool.limit_client(limited[0].client, 0)
    assert len(pool) == len(other)
