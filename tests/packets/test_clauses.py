"""Scenarios have a packet for every clause that a packet can show, and name listed clauses only."""

import itertools
import re
from pathlib import Path

import pytest

from tests.packets import clauses
from tests.support.families import VERSIONS
from tests.support.scenario import Scenario, read_scenarios

ROOT = Path(__file__).parent.parent.parent
SCENARIOS = read_scenarios()
PACKETS = [packet for scenario in SCENARIOS for packet in scenario.packets]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_clause_has_a_packet_and_every_packet_has_a_listed_clause(version: int) -> None:
    shown = {clause for packet in PACKETS if version in packet.versions for clause in packet.clauses}
    assert sorted(clauses.SHOWN.keys() - shown) == []
    assert sorted(shown - clauses.SHOWN.keys()) == []


@pytest.mark.parametrize("detection", clauses.DETECTIONS)
def test_masquerade_matrix_has_every_client_and_frontend(detection: str) -> None:
    """Every client connects to every kind of frontend, with either external policy."""
    clause = clauses.masquerade_clause(detection)
    cells = {(packet.client, packet.to) for packet in PACKETS if clause in packet.clauses}
    assert set(itertools.product(clauses.CLIENTS, clauses.FRONTENDS)) == cells


@pytest.mark.parametrize("row", clauses.SERVICE_PORT_CLAUSES)
def test_every_row_of_service_ports_has_a_packet_or_a_reason(row: str) -> None:
    clause = f"nftables.md#{row}"
    assert (clause in clauses.SHOWN) != (clause in clauses.NO_PACKET)


def test_every_clause_is_an_anchor_with_a_requirement() -> None:
    requirements = clauses.SHOWN | {clause: item.requirement for clause, item in clauses.NO_PACKET.items()}
    assert len(requirements) == len(clauses.SHOWN) + len(clauses.NO_PACKET)
    assert all(re.fullmatch(r"[a-z-]+\.md#[a-z0-9-]+", clause) for clause in requirements)
    assert all(requirements.values())


@pytest.mark.parametrize("clause", clauses.NO_PACKET)
def test_a_clause_without_a_packet_has_a_reason_and_names_an_existing_test(clause: str) -> None:
    item = clauses.NO_PACKET[clause]
    assert item.reason
    assert clause not in clauses.SHOWN
    if item.test:
        path, _, name = item.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), item.test


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_a_drop_is_tested_where_an_answer_is_possible(scenario: Scenario) -> None:
    """A drop proves nothing at an address that would not be answered anyway.

    Either another client is answered there, or the remote node would answer. Cluster IPs in use and the node itself
    reject what is not dropped.
    """
    own = {name for names in scenario.addresses.values() for name in names}
    answered = {packet.to for packet in scenario.packets if not packet.dropped}
    dropped = {packet.to for packet in scenario.packets if packet.dropped and packet.to.startswith("$external.")}
    dropped_only = {to for to in dropped - answered if to.partition(":")[0] not in own}
    assert [to for to in dropped_only if not re.fullmatch(r"\$external\.9[6-9]:80", to)] == []
