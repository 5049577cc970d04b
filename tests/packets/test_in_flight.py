"""No packet that is between two rules at a commit is lost. Slow chains delay thousands of packets until a commit."""

from pathlib import Path

import pytest

from tests.packets.appearing_frontends import run_appearing, run_first_endpoint, run_first_syncs
from tests.support.lab.topology import Lab
from tests.support.packets.in_flight import (
    assert_none_lost,
    run_affinity_toggle,
    run_hairpin,
    run_last_local_endpoint,
    run_new_chains,
    run_scaling,
)

pytestmark = pytest.mark.kernel


def test_verdict_never_leads_to_a_new_chain_without_rules(lab_with_clients: Lab, tmp_path: Path) -> None:
    """New chains are committed before the verdicts that lead to them (docs/design/transaction-phases.md)."""
    assert_none_lost(lambda seed: run_new_chains(lab_with_clients, tmp_path, seed), during_commit=100)


def test_packet_finds_an_endpoint_when_its_pool_shrinks(lab_with_clients: Lab, tmp_path: Path) -> None:
    """The second rule of each pool leads to the endpoint at index 0, which always exists."""
    assert_none_lost(lambda seed: run_scaling(lab_with_clients, tmp_path, seed, times=100), during_commit=50)


def test_removed_endpoint_that_connects_to_itself_is_answered(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Hairpin elements are removed after the pools: packets to their own client are still masqueraded."""
    assert_none_lost(lambda seed: run_hairpin(lab_with_clients, tmp_path, seed, times=200), during_commit=20)


def test_pod_is_answered_when_the_last_local_endpoint_is_removed(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Policy Local does not apply to pods."""
    assert_none_lost(lambda seed: run_last_local_endpoint(lab_with_clients, tmp_path, seed, times=25), during_commit=5)


@pytest.mark.parametrize("cluster_ip_only", [False, True], ids=["all frontends", "cluster IP"])
def test_packet_finds_an_endpoint_while_affinity_is_switched(
    lab_with_clients: Lab, tmp_path: Path, *, cluster_ip_only: bool
) -> None:
    """Each change creates new chains for the Service.

    They are committed before the verdicts that lead to them, or in the same transaction if packets return from them.
    """
    assert_none_lost(
        lambda seed: run_affinity_toggle(lab_with_clients, tmp_path, seed, times=60, cluster_ip_only=cluster_ip_only),
        during_commit=100,
    )


def test_new_frontend_is_served_or_refused(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Its new chains are committed together with its verdict: a packet before that is refused as before."""
    assert_none_lost(lambda seed: run_appearing(lab_with_clients, tmp_path, seed, times=5), during_commit=20)


def test_frontend_is_served_or_refused_during_a_first_sync(lab_with_clients: Lab, tmp_path: Path) -> None:
    """The first sync is one transaction."""
    assert_none_lost(lambda seed: run_first_syncs(lab_with_clients, tmp_path, seed, times=3), during_commit=5)


def test_service_with_its_first_endpoint_is_served_or_rejects(lab_with_clients: Lab, tmp_path: Path) -> None:
    """A packet that was not translated is still rejected after the commit."""
    assert_none_lost(lambda seed: run_first_endpoint(lab_with_clients, tmp_path, seed, times=10), during_commit=20)
