"""Any history of a cluster ends with the right table also if nearly every transaction is sent in pieces."""

from random import Random

import pytest

from tests.sync.memory_history import MemoryHistory


@pytest.mark.parametrize("seed", range(3))
def test_any_history_with_small_pieces_ends_with_the_table_of_a_fresh_start(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in ("prepare", "table_writer"):
        monkeypatch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", 4)
    MemoryHistory(Random(seed)).run(60)
