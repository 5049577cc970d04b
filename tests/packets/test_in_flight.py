"""No packet that is under way at a commit is lost to it: packets are held up, so that thousands are."""

from pathlib import Path

import pytest

from tests.packets.in_flight import made_sticky, new_chains, scaled, to_itself
from tests.support.lab.topology import Lab

pytestmark = pytest.mark.kernel


def test_no_packet_is_led_to_a_chain_that_was_empty_when_it_came(crowded_lab: Lab, tmp_path: Path) -> None:
    """New chains are sent ahead of the verdicts that lead to them."""
    played = new_chains(crowded_lab, tmp_path, seed=7)
    print(played)
    assert played.lost == []
    assert played.across > 100


def test_a_packet_whose_pool_has_shrunk_meanwhile_finds_an_endpoint(crowded_lab: Lab, tmp_path: Path) -> None:
    """The second rule of each pool leads to the endpoint that is always there."""
    played = scaled(crowded_lab, tmp_path, seed=7, times=100)
    print(played)
    assert played.lost == []
    assert played.across > 50


def test_an_endpoint_that_goes_while_it_dials_itself_hears_its_answer(crowded_lab: Lab, tmp_path: Path) -> None:
    """Hairpin elements are removed after the pools have changed: who was led to itself is still masqueraded."""
    played = to_itself(crowded_lab, tmp_path, seed=7, times=200)
    print(played)
    assert played.lost == []
    assert played.across > 20


@pytest.mark.parametrize("by_cluster_ip_alone", [False, True], ids=["all frontends", "cluster IP"])
def test_a_packet_finds_an_endpoint_while_a_service_becomes_sticky_and_changes(
    crowded_lab: Lab, tmp_path: Path, *, by_cluster_ip_alone: bool
) -> None:
    """Its chains are new again and again: sent ahead, or in one transaction where packets come back from them."""
    played = made_sticky(crowded_lab, tmp_path, seed=7, times=60, by_cluster_ip_alone=by_cluster_ip_alone)
    print(played)
    assert played.lost == []
    assert played.across > 100
