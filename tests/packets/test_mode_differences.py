"""Packets name expected differences between modes, and only those that knft lists."""

import pytest

from tests.support.packets.mode_differences import DOCUMENTATION, WITHOUT_PACKET, difference_names, with_table
from tests.support.scenario import Expectation, read_scenarios

MODES = ("iptables", "ipvs")
PACKETS = [packet for scenario in read_scenarios() for packet in scenario.packets]


@pytest.mark.parametrize("mode", MODES)
def test_packets_show_exactly_the_listed_differences(mode: str) -> None:
    shown = {difference.by for packet in PACKETS for difference in packet.mode_differences(mode)}
    unseen = {reason for reason, of_mode in WITHOUT_PACKET if of_mode.value == mode}
    assert shown | unseen == difference_names(mode)
    assert shown & unseen == set()


@pytest.mark.parametrize("mode", MODES)
def test_mode_difference_differs_from_the_nftables_outcome(mode: str) -> None:
    differing = [(packet, difference) for packet in PACKETS for difference in packet.mode_differences(mode)]
    assert [packet.to for packet, difference in differing if _outcome(packet) == _outcome(difference)] == []


def test_documentation_has_the_table_of_differences() -> None:
    text = DOCUMENTATION.read_text()
    assert text.count("| kube-proxy mode |") == 1
    assert with_table(text) == text


def _outcome(expected: Expectation) -> tuple[object, ...]:
    names = ("answered_by", "always_one_of", "source", "rejected", "dropped", "unserved")
    return tuple(getattr(expected, name) for name in names)
