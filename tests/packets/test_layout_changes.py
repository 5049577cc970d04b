"""A Service that becomes wide or no longer is, or whose rules for known clients are in other blocks, loses nothing."""

from itertools import cycle, product
from pathlib import Path

import pytest

from knft.render import affinity, wide
from tests.support.lab.topology import Lab
from tests.support.packets.connections_under_churn import run_churn
from tests.support.packets.in_flight import assert_none_lost, run_layout_changes

CONNECTIONS = 21_000
EVERY_SERVICE, USUAL = 0, wide.COPIES_FACTOR
ONE_EACH, USUAL_BLOCKS = 1, affinity.MAX_BLOCK_SIZE

pytestmark = pytest.mark.kernel


def test_no_connection_is_lost_while_services_change_their_layout(
    lab_with_clients: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoints of a Service change in the same sync as its layout; every change is checked as without it."""
    layouts = cycle(product((EVERY_SERVICE, USUAL), (ONE_EACH, USUAL_BLOCKS)))

    def change_layout() -> None:
        factor, block_size = next(layouts)
        monkeypatch.setattr(wide, "COPIES_FACTOR", factor)
        monkeypatch.setattr(wide, "MAX_BLOCK_SIZE", block_size)

    result = run_churn(lab_with_clients, tmp_path, CONNECTIONS, seed=7, before_step=change_layout)
    print(result)
    assert result.faults == []
    assert result.untranslated == 0
    assert result.answered.total() == CONNECTIONS
    assert result.syncs > 20


def test_packet_finds_an_endpoint_when_its_service_becomes_wide(
    lab_with_clients: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoints of the old layout are removed after the new verdicts are in force."""
    factors = cycle((EVERY_SERVICE, USUAL))

    def change_layout() -> None:
        monkeypatch.setattr(wide, "COPIES_FACTOR", next(factors))

    assert_none_lost(
        lambda seed: run_layout_changes(lab_with_clients, tmp_path, seed, times=100, change_layout=change_layout),
        during_commit=50,
    )
