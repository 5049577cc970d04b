"""Whatever happens to knft or to other endpoints, remembered clients stay where they are."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.packets.many_clients import HTTP, PODS, STICKY, BackgroundDials, OutsideClients, clients, sticky_for
from tests.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.knft_command import sync_once, write_manifests
from tests.support.lab import plan
from tests.support.lab.traffic import NO_ANSWER
from tests.support.scenario import VERSIONS, Scenario

LEFT = tuple(pod for pod in PODS if pod != "remote-1")
Objects = list[dict[str, Any]]

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]


def _cluster(*pods: str, **affinity: Any) -> Objects:
    sticky = service("s", 50, *tcp_and_udp("http", 80), **(affinity or STICKY))
    return [sticky, endpoints("s", *pods, http=HTTP)]


def _of(answers: dict[str, str], *pods: str) -> dict[str, str]:
    """Return the answers of these pods alone."""
    return {client: pod for client, pod in answers.items() if pod in pods}


def _refused_at_first(node: ProgrammedNode, objects: Objects) -> None:
    node.apply_refused(objects)
    node.apply([])


def _an_hour_later(node: ProgrammedNode, objects: Objects) -> None:
    node.clock_offset += 3601
    node.invalidate()
    assert all(report.is_full for report in node.apply(objects).values())


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(ProgrammedNode.restart, id="a restart"),
        pytest.param(_refused_at_first, id="a refused commit"),
        pytest.param(_an_hour_later, id="a comparison after an hour"),
    ],
)
def test_clients_are_remembered_across(
    node: ProgrammedNode,
    outside: OutsideClients,
    version: plan.Version,
    happens: Callable[[ProgrammedNode, Objects], None],
) -> None:
    """With nothing else changing, and with an endpoint that goes and comes back meanwhile."""
    crowd = clients(version, 100)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, crowd)
    happens(node, _cluster(*PODS))
    assert first == outside.servers_of("cluster.50", 80, crowd)
    happens(node, _cluster(*LEFT))
    second = outside.servers_of("cluster.50", 80, crowd)
    assert len(_of(first, *LEFT)) > 50
    assert _of(first, *LEFT).items() <= second.items()
    assert set(second.values()) == set(LEFT)
    happens(node, _cluster(*PODS))
    assert second == outside.servers_of("cluster.50", 80, crowd)


def test_clients_are_remembered_across_processes(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, tmp_path: Path
) -> None:
    """``knft run`` takes over a table that another process of knft has made, and another one takes over from it."""
    crowd = clients(version, 100)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, crowd)
    for pods in (LEFT, PODS):
        scenario = Scenario("", _cluster(*pods), ())
        write_manifests(tmp_path, scenario.manifests())
        sync_once(node.namespace, tmp_path, *scenario.arguments())
        answers = outside.servers_of("cluster.50", 80, crowd)
        assert set(answers.values()) == set(LEFT)
        assert _of(first, *LEFT).items() <= answers.items()
        assert answers == outside.servers_of("cluster.50", 80, crowd)


def test_a_refused_commit_leaves_clients_where_they_are(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Until it is tried again, the endpoint that was to go answers its own clients, and a newcomer nobody."""
    crowd = clients(version, 100)
    node.apply(_cluster(*PODS[:3]))
    first = outside.servers_of("cluster.50", 80, crowd)
    node.apply_refused(_cluster(*PODS[1:]))
    assert first == outside.servers_of("cluster.50", 80, crowd)


def test_an_endpoint_goes_with_ten_thousand_remembered_clients(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Some of them just expiring: nothing is refused, those of other endpoints stay, the rest move once."""
    everybody = clients(version, 10_000)
    lasting, fleeting = everybody[:6_000], everybody[6_000:]
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, lasting)
    node.apply(_cluster(*PODS, **sticky_for(1)))
    began = time.monotonic()
    passing = outside.servers_of("cluster.50", 80, fleeting)
    ended = time.monotonic()
    node.apply(_cluster(*PODS))
    # The first of them are forgotten a second after they dialled, the last a second after theirs: now it is half-way.
    time.sleep(max(0.0, (began + ended) / 2 + 1 - time.monotonic()))

    with BackgroundDials(outside, "cluster.50", 80, lasting) as meanwhile:
        node.apply(_cluster(*LEFT))
    moved = _moved_once(outside, lasting, first, meanwhile.answers)

    time.sleep(max(0.0, ended + 1 - time.monotonic()))
    renewed = outside.servers_of("cluster.50", 80, fleeting)
    assert set(renewed.values()) == set(LEFT)
    assert not _of(passing, *LEFT).items() <= renewed.items()

    # One that comes back is not given its old clients: nobody is led to it by an old memory.
    node.apply(_cluster(*PODS))
    assert moved == outside.servers_of("cluster.50", 80, list(moved))


def _moved_once(
    outside: OutsideClients, lasting: list[str], first: dict[str, str], meanwhile: dict[str, str]
) -> dict[str, str]:
    """Return who answers the clients that had to move, having checked that they move once, and that others stay."""
    assert len(meanwhile) > 2 * BackgroundDials.MARGIN
    assert NO_ANSWER not in meanwhile.values()
    assert {client: pod for client, pod in meanwhile.items() if first[client] in LEFT}.items() <= first.items()
    stayed = [client for client in lasting if first[client] in LEFT]
    assert len(stayed) > 4_000
    stayed = stayed[-3_000:]
    assert {client: first[client] for client in stayed} == outside.servers_of("cluster.50", 80, stayed)
    left = [client for client in lasting if first[client] == "remote-1"]
    assert len(left) > 1_000
    moved = outside.servers_of("cluster.50", 80, left)
    assert set(moved.values()) == set(LEFT)
    assert _of({client: meanwhile.get(client, "") for client in left}, *LEFT).items() <= moved.items()
    assert moved == outside.servers_of("cluster.50", 80, left)
    return moved


def test_an_endpoint_comes_and_goes_under_connections(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """As fast as syncs go: nothing is refused, and clients of other endpoints are answered by theirs."""
    everybody = clients(version, 60_000)
    node.apply(_cluster(*PODS))
    first = outside.servers_of("cluster.50", 80, everybody[:3_000])
    returning = _of(first, *LEFT)
    with BackgroundDials(outside, "cluster.50", 80, [*returning, *everybody[3_000:]]) as meanwhile:
        for flip in range(20):
            node.apply(_cluster(*(LEFT if flip % 2 == 0 else PODS)))
    assert len(meanwhile.answers) > 2 * BackgroundDials.MARGIN
    assert set(meanwhile.answers.values()) <= set(PODS)
    assert {client: pod for client, pod in meanwhile.answers.items() if client in returning}.items() <= first.items()
    assert _of(first, *LEFT) == outside.servers_of("cluster.50", 80, list(returning))
