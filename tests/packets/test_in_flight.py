"""No packet that is between two rules at a commit is lost. Slow chains delay thousands of packets until a commit."""

from pathlib import Path

import pytest

from tests.packets.appearing_frontends import run_appearing, run_first_endpoint, run_first_syncs
from tests.packets.in_flight import (
    InFlightResult,
    run_affinity_toggle,
    run_hairpin,
    run_last_local_endpoint,
    run_new_chains,
    run_scaling,
)
from tests.support.lab.topology import Lab

pytestmark = pytest.mark.kernel


def _assert_none_lost(result: InFlightResult, during_commit: int) -> None:
    """Also require more connections than ``during_commit`` during commits: fewer would show nothing."""
    print(result)
    assert result.lost == []
    assert result.during_commit > during_commit


def test_verdict_never_leads_to_a_new_chain_without_rules(lab_with_clients: Lab, tmp_path: Path) -> None:
    """New chains are committed before the verdicts that lead to them (docs/design/transaction-phases.md)."""
    result = run_new_chains(lab_with_clients, tmp_path, seed=7)
    _assert_none_lost(result, during_commit=100)


def test_packet_finds_an_endpoint_when_its_pool_shrinks(lab_with_clients: Lab, tmp_path: Path) -> None:
    """The second rule of each pool leads to the endpoint at index 0, which always exists."""
    result = run_scaling(lab_with_clients, tmp_path, seed=7, times=100)
    _assert_none_lost(result, during_commit=50)


def test_removed_endpoint_that_connects_to_itself_is_answered(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Hairpin elements are removed after the pools: packets to their own client are still masqueraded."""
    result = run_hairpin(lab_with_clients, tmp_path, seed=7, times=200)
    _assert_none_lost(result, during_commit=20)


def test_pod_is_answered_when_the_last_local_endpoint_is_removed(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Policy Local does not apply to pods."""
    result = run_last_local_endpoint(lab_with_clients, tmp_path, seed=7, times=25)
    _assert_none_lost(result, during_commit=5)


@pytest.mark.parametrize("cluster_ip_only", [False, True], ids=["all frontends", "cluster IP"])
def test_packet_finds_an_endpoint_while_affinity_is_switched(
    lab_with_clients: Lab, tmp_path: Path, *, cluster_ip_only: bool
) -> None:
    """Each change creates new chains for the Service.

    They are committed before the verdicts that lead to them, or in the same transaction if packets return from them.
    """
    result = run_affinity_toggle(lab_with_clients, tmp_path, seed=7, times=60, cluster_ip_only=cluster_ip_only)
    _assert_none_lost(result, during_commit=100)


def test_new_frontend_is_served_or_refused(lab_with_clients: Lab, tmp_path: Path) -> None:
    """Its new chains are committed together with its verdict: a packet before that is refused as before."""
    result = run_appearing(lab_with_clients, tmp_path, seed=7, times=5)
    _assert_none_lost(result, during_commit=20)


def test_frontend_is_served_or_refused_during_a_first_sync(lab_with_clients: Lab, tmp_path: Path) -> None:
    """The first sync is one transaction."""
    result = run_first_syncs(lab_with_clients, tmp_path, seed=7, times=3)
    _assert_none_lost(result, during_commit=5)


def test_service_with_its_first_endpoint_is_served_or_rejects(lab_with_clients: Lab, tmp_path: Path) -> None:
    """A packet that was not translated is still rejected after the commit."""
    result = run_first_endpoint(lab_with_clients, tmp_path, seed=7, times=10)
    _assert_none_lost(result, during_commit=20)
