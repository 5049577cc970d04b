"""Killed anywhere and started again: traffic never stops, the table ends right, sticky clients stay."""

from pathlib import Path

import pytest

from tests.packets.killing import play
from tests.packets.running import IDLE
from tests.support.lab.topology import Lab

KILLS = 20

pytestmark = pytest.mark.kernel


def test_knft_may_be_killed_at_any_moment(crowded_lab: Lab, tmp_path: Path) -> None:
    """While endpoints and Services come and go; and a start on an unchanged cluster sends nothing to the kernel."""
    killed = play(crowded_lab, tmp_path, KILLS, seed=6)
    print(killed)
    assert killed.faults == []
    assert killed.untranslated == 0
    assert killed.wrong == []
    assert killed.changes == []
    assert [line.rpartition(": ")[2] for line in killed.restart] == [IDLE] * 2
    # There was something to see.
    assert 0 < killed.full_syncs < 2 * KILLS
    assert killed.answered > 1000
    assert killed.seen["stayed"] > 100
