"""Clients of sticky Services keep their endpoint when knft restarts or other endpoints change."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.knft_command import sync_once, write_manifests
from tests.support.lab import plan
from tests.support.lab.traffic import NO_ANSWER
from tests.support.packets.many_clients import HTTP, PODS, STICKY, BackgroundDials, OutsideClients, clients, sticky_for
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.scenario import VERSIONS, Scenario

REMAINING_PODS = tuple(pod for pod in PODS if pod != "remote-1")
Objects = list[dict[str, Any]]

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]


def _cluster(*pods: str, **affinity: Any) -> Objects:
    sticky = service("s", 50, *tcp_and_udp("http", 80), **(affinity or STICKY))
    return [sticky, endpoints("s", *pods, http=HTTP)]


def _answered_by(answers: dict[str, str], *pods: str) -> dict[str, str]:
    """Return the clients that these pods have answered."""
    return {client: pod for client, pod in answers.items() if pod in pods}


def _refuse_once(node: ProgrammedNode, objects: Objects) -> None:
    node.apply_refused(objects)
    node.apply([])


def _full_sync_after_an_hour(node: ProgrammedNode, objects: Objects) -> None:
    node.clock_offset += 3601
    node.invalidate()
    assert all(report.is_full for report in node.apply(objects).values())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(ProgrammedNode.restart, id="a restart"),
        pytest.param(_refuse_once, id="a refused commit"),
        pytest.param(_full_sync_after_an_hour, id="a full sync after an hour"),
    ],
)
def test_sticky_clients_keep_their_endpoint_after_a_change(
    node: ProgrammedNode,
    outside: OutsideClients,
    version: plan.Version,
    change: Callable[[ProgrammedNode, Objects], None],
) -> None:
    """They also keep it if another endpoint is removed at the same time, and added again later."""
    sources = clients(version, 100)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, sources)
    change(node, _cluster(*PODS))
    assert first == outside.servers_of("cluster.50", 80, sources)
    change(node, _cluster(*REMAINING_PODS))
    second = outside.servers_of("cluster.50", 80, sources)
    assert len(_answered_by(first, *REMAINING_PODS)) > 50
    assert _answered_by(first, *REMAINING_PODS).items() <= second.items()
    assert set(second.values()) == set(REMAINING_PODS)
    change(node, _cluster(*PODS))
    assert second == outside.servers_of("cluster.50", 80, sources)


def test_sticky_clients_keep_their_endpoint_in_another_process(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, tmp_path: Path
) -> None:
    """``knft run --once`` takes over a table from another process of knft, and a third one takes over from it."""
    sources = clients(version, 100)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, sources)
    for pods in (REMAINING_PODS, PODS):
        scenario = Scenario("", _cluster(*pods), ())
        write_manifests(tmp_path, scenario.manifests())
        sync_once(node.namespace, tmp_path, *scenario.arguments())
        answers = outside.servers_of("cluster.50", 80, sources)
        assert set(answers.values()) == set(REMAINING_PODS)
        assert _answered_by(first, *REMAINING_PODS).items() <= answers.items()
        assert answers == outside.servers_of("cluster.50", 80, sources)


def test_clients_keep_their_endpoint_after_a_refused_commit(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The endpoint to be removed answers its clients until the next attempt, and the new one answers none."""
    sources = clients(version, 100)
    node.apply(_cluster(*PODS[:3]))
    first = outside.servers_of("cluster.50", 80, sources)
    node.apply_refused(_cluster(*PODS[1:]))
    assert first == outside.servers_of("cluster.50", 80, sources)


def test_ten_thousand_clients_move_once_when_an_endpoint_is_removed(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Some are just expiring: no connection is refused, clients of other endpoints stay, the others move once.

    At most one moves twice: its packet meets the commit.
    """
    all_clients = clients(version, 10_000)
    lasting, fleeting = all_clients[:6_000], all_clients[6_000:]
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, lasting)
    node.apply(_cluster(*PODS, **sticky_for(1)))
    started = time.monotonic()
    passing = outside.servers_of("cluster.50", 80, fleeting)
    ended = time.monotonic()
    node.apply(_cluster(*PODS))
    # Clients are forgotten one second after they have connected: at this time half of them are.
    time.sleep(max(0.0, (started + ended) / 2 + 1 - time.monotonic()))

    with BackgroundDials(outside, "cluster.50", 80, lasting) as background:
        node.apply(_cluster(*REMAINING_PODS))
    moved = _check_moved_once(outside, lasting, first, background.answers)

    time.sleep(max(0.0, ended + 1 - time.monotonic()))
    renewed = outside.servers_of("cluster.50", 80, fleeting)
    assert set(renewed.values()) == set(REMAINING_PODS)
    assert not _answered_by(passing, *REMAINING_PODS).items() <= renewed.items()

    # An endpoint that is added again does not get its former clients.
    node.apply(_cluster(*PODS))
    assert moved == outside.servers_of("cluster.50", 80, list(moved))


def _check_moved_once(
    outside: OutsideClients, lasting: list[str], first: dict[str, str], background: dict[str, str]
) -> dict[str, str]:
    """Return the servers of the clients that had to move; check that all but one moved once, and that others stayed."""
    assert len(background) > 2 * BackgroundDials.MARGIN
    assert NO_ANSWER not in background.values()
    assert {
        client: pod for client, pod in background.items() if first[client] in REMAINING_PODS
    }.items() <= first.items()
    stayed = [client for client in lasting if first[client] in REMAINING_PODS]
    assert len(stayed) > 4_000
    stayed = stayed[-3_000:]
    assert {client: first[client] for client in stayed} == outside.servers_of("cluster.50", 80, stayed)
    left = [client for client in lasting if first[client] == "remote-1"]
    assert len(left) > 1_000
    moved = outside.servers_of("cluster.50", 80, left)
    assert set(moved.values()) == set(REMAINING_PODS)
    answered = _answered_by({client: background.get(client, "") for client in left}, *REMAINING_PODS)
    # A packet that meets the commit between the lookups of ID and endpoint goes to the endpoint that takes the index,
    # and its client is assigned later. Only one packet at a time is in the rules.
    assigned_later = {client: pod for client, pod in answered.items() if moved[client] != pod}
    assert len(assigned_later) <= 1
    assert set(assigned_later.values()) <= {PODS[-1]}
    assert moved == outside.servers_of("cluster.50", 80, left)
    return moved


def test_no_connection_is_refused_while_endpoints_are_removed_and_added(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Endpoints change as fast as knft syncs: no connection is refused, and clients of other endpoints keep them."""
    all_clients = clients(version, 60_000)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, all_clients[:3_000])
    returning = _answered_by(first, *REMAINING_PODS)
    with BackgroundDials(outside, "cluster.50", 80, [*returning, *all_clients[3_000:]]) as background:
        for flip in range(20):
            node.apply(_cluster(*(REMAINING_PODS if flip % 2 == 0 else PODS)))
    assert len(background.answers) > 2 * BackgroundDials.MARGIN
    assert set(background.answers.values()) <= set(PODS)
    assert {client: pod for client, pod in background.answers.items() if client in returning}.items() <= first.items()
    assert _answered_by(first, *REMAINING_PODS) == outside.servers_of("cluster.50", 80, list(returning))
