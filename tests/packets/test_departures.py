"""Where the modes differ, a packet says so with a reason from one list, and the README shows that list."""

from pathlib import Path

import pytest

from tests.packets.departures import DEPARTURES, table
from tests.packets.scenario import Expected, read_scenarios

README = Path(__file__).parent.parent.parent / "README.md"
MODES = ("iptables", "ipvs")
PACKETS = [packet for scenario in read_scenarios() for packet in scenario.packets]


@pytest.mark.parametrize("mode", MODES)
def test_every_reason_is_on_the_list_and_every_one_on_it_is_shown_by_a_packet(mode: str) -> None:
    shown = {departure.by for packet in PACKETS for departure in packet.departures(mode)}
    assert {name for name, reason in DEPARTURES.items() if mode in reason.modes} == shown


@pytest.mark.parametrize("mode", MODES)
def test_a_departure_is_another_outcome(mode: str) -> None:
    departed = [(packet, departure) for packet in PACKETS for departure in packet.departures(mode)]
    assert [packet.to for packet, departure in departed if _outcome(packet) == _outcome(departure)] == []


def test_the_readme_shows_the_list() -> None:
    assert table() in README.read_text()


def _outcome(expected: Expected) -> tuple[object, ...]:
    names = ("answered_by", "always_one_of", "source", "rejected", "dropped", "unserved")
    return tuple(getattr(expected, name) for name in names)
