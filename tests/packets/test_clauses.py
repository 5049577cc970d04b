"""Every clause that a packet can show is shown by one, and no scenario shows a clause that nobody asked for."""

import itertools
import re
from pathlib import Path

import pytest

from tests.packets import clauses
from tests.packets.scenario import VERSIONS, Scenario, read_scenarios

ROOT = Path(__file__).parent.parent.parent
SCENARIOS = read_scenarios()
PACKETS = [packet for scenario in SCENARIOS for packet in scenario.packets]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_clause_has_a_packet_and_every_packet_a_clause(version: int) -> None:
    shown = {clause for packet in PACKETS if version in packet.versions for clause in packet.clauses}
    assert sorted(clauses.SHOWN - shown) == []
    assert sorted(shown - clauses.SHOWN) == []


@pytest.mark.parametrize("detection", clauses.DETECTIONS)
def test_the_masquerade_matrix_is_complete(detection: str) -> None:
    """Every source dials every kind of frontend, under either external policy."""
    clause = f"K.6 masquerade {detection}"
    cells = {(packet.client, packet.to) for packet in PACKETS if clause in packet.clauses}
    assert set(itertools.product(clauses.SOURCES, clauses.DESTINATIONS)) == cells


@pytest.mark.parametrize("row", range(1, 18))
def test_every_row_of_the_rules_for_a_service_port_is_shown_or_explained(row: int) -> None:
    clause = f"C.6({row})"
    assert (clause in clauses.SHOWN) != (clause in clauses.NO_PACKET)


@pytest.mark.parametrize("clause", clauses.NO_PACKET)
def test_a_clause_without_a_packet_says_why_and_names_a_test_that_exists(clause: str) -> None:
    reason, test = clauses.NO_PACKET[clause]
    assert reason
    assert clause not in clauses.SHOWN
    if test:
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_what_is_dropped_would_be_seen(scenario: Scenario) -> None:
    """A drop proves nothing at an address of which nobody would hear anyhow.

    Others hear of it, or the remote node would answer. Live cluster IPs and the node itself refuse what is not dropped.
    """
    own = {name for names in scenario.addresses.values() for name in names}
    heard = {packet.to for packet in scenario.packets if not packet.dropped}
    dropped = {packet.to for packet in scenario.packets if packet.dropped and packet.to.startswith("$external.")}
    alone = {to for to in dropped - heard if to.partition(":")[0] not in own}
    assert [to for to in alone if not re.fullmatch(r"\$external\.9[6-9]:80", to)] == []
