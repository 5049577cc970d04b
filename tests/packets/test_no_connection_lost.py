"""No connection is lost to a sync, whatever endpoints do meanwhile; ``make soak`` makes a million connections."""

from pathlib import Path

import pytest

from tests.packets.frontends import CLIENTS, frontends
from tests.packets.never_resting import play
from tests.support.lab.topology import Lab

CONNECTIONS = 60_000
"""As many for each client."""

pytestmark = pytest.mark.kernel


def test_no_connection_is_lost_while_endpoints_come_and_go(crowded_lab: Lab, tmp_path: Path) -> None:
    """None fails, none leaves untranslated, none reaches whom its policy forbids; sticky clients stay, and move."""
    played = play(crowded_lab, tmp_path, CONNECTIONS, seed=5)
    print(played)
    assert played.faults == []
    assert played.untranslated == 0
    assert played.answered.total() == CONNECTIONS
    assert set(played.answered) == {str(frontend) for client in CLIENTS for frontend in frontends(client)}
    # There was something to see.
    assert played.syncs > 100
    assert played.seen["across a commit"] > 1000
    assert played.seen["stayed"] > 1000
    assert played.seen["moved"] > 100
