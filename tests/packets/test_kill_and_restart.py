"""knft is killed at random times and restarted: no connection is lost, the tables are correct, sticky clients stay."""

from pathlib import Path

import pytest

from tests.support.lab.topology import Lab
from tests.support.packets.kill_and_restart import run_kills
from tests.support.packets.manifest_knft import IDLE

KILLS = 20
PAUSE = 0.004
"""Four times that of ``make soak``: the clients would use most of the CPU."""

pytestmark = pytest.mark.kernel


def test_killed_knft_loses_no_connection(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Endpoints and Services change meanwhile. A start on an unchanged cluster changes nothing in the kernel."""
    result = run_kills(lab_with_clients, tmp_path, KILLS, seed=6, pause=PAUSE)
    print(result)
    assert result.faults == []
    assert result.untranslated == 0
    assert result.table_differences == []
    assert result.changes == []
    assert [line.rpartition(": ")[2] for line in result.restart] == [IDLE] * 2
    # The run made enough full syncs and connections to be meaningful.
    assert 0 < result.full_syncs < 2 * KILLS
    assert result.answered > 1000
    assert result.seen["stayed"] > 100
