"""No connection is lost during syncs that change endpoints; ``make soak`` makes a million connections."""

from pathlib import Path

import pytest

from tests.support.lab.topology import Lab
from tests.support.packets.connections_under_churn import run_churn
from tests.support.packets.frontends import CLIENTS, frontends

CONNECTIONS = 60_000
"""Shared equally by the clients."""

pytestmark = pytest.mark.kernel


def test_no_connection_is_lost_while_endpoints_change(lab_with_clients: Lab, tmp_path: Path) -> None:
    """No connection fails, is untranslated, or violates a policy; sticky clients stay until they have to move."""
    result = run_churn(lab_with_clients, tmp_path, CONNECTIONS, seed=5)
    print(result)
    assert result.faults == []
    assert result.untranslated == 0
    assert result.answered.total() == CONNECTIONS
    assert set(result.answered) == {str(frontend) for client in CLIENTS for frontend in frontends(client)}
    # The run made enough syncs and connections to be meaningful.
    assert result.syncs > 100
    assert result.seen["during a commit"] > 1000
    assert result.seen["stayed"] > 1000
    assert result.seen["moved"] > 100
