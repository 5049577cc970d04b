"""Where the modes differ, a packet says so with a reason from one list, and the README shows that list."""

import subprocess
from pathlib import Path

import pytest

from tests.packets.departures import UNSEEN, departures, table
from tests.packets.node import KNFT, NODE_FLAG, write_manifests
from tests.packets.scenario import Expected, Scenario, read_scenarios

README = Path(__file__).parent.parent.parent / "README.md"
MODES = ("iptables", "ipvs")
PACKETS = [packet for scenario in read_scenarios() for packet in scenario.packets]


@pytest.mark.parametrize("mode", MODES)
def test_every_reason_is_on_the_list_and_every_one_on_it_is_shown_by_a_packet(mode: str) -> None:
    shown = {departure.by for packet in PACKETS for departure in packet.departures(mode)}
    unseen = {reason for reason, of_mode in UNSEEN if of_mode.value == mode}
    assert shown | unseen == departures(mode)
    assert shown & unseen == set()


@pytest.mark.parametrize("mode", MODES)
def test_a_departure_is_another_outcome(mode: str) -> None:
    departed = [(packet, departure) for packet in PACKETS for departure in packet.departures(mode)]
    assert [packet.to for packet, departure in departed if _outcome(packet) == _outcome(departure)] == []


@pytest.mark.parametrize("scenario", [item for item in read_scenarios() if item.cannot], ids=lambda item: item.name)
def test_what_a_mode_cannot_express_it_refuses(scenario: Scenario, tmp_path: Path) -> None:
    write_manifests(tmp_path, scenario.manifests())
    for mode in scenario.cannot:
        arguments = ["render", "-f", str(tmp_path), *NODE_FLAG, "--backend", mode, *scenario.arguments()]
        done = subprocess.run([*KNFT, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot express" in done.stderr


def test_the_readme_shows_the_list() -> None:
    assert table() in README.read_text()


def _outcome(expected: Expected) -> tuple[object, ...]:
    names = ("answered_by", "always_one_of", "source", "rejected", "dropped", "unserved")
    return tuple(getattr(expected, name) for name in names)
