"""Any history of a cluster ends with the right table also if nearly every transaction is sent in pieces."""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.sync.memory_history import MemoryHistory


@settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False, note_method_calls=False))
def test_any_history_with_small_pieces_ends_with_the_table_of_a_fresh_start(rng: Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("prepare", "table_writer"):
            patch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", 4)
        MemoryHistory(rng).run(60)
