"""Tests of the parts of ``tests.parity.migration`` that need neither kube-proxy nor a kernel."""

from tests.parity.migration.phases import Phase, check_phases
from tests.parity.migration.services import CHANGED, all_frontends, objects
from tests.support.lab.clients import NONE, Connection
from tests.support.packets.churn import SERVICES, Backend
from tests.support.packets.frontends import Frontend
from tests.support.packets.timeline import Timeline

POOL = (Backend("local-1", 8080), Backend("remote-1", 8080))
PHASES = [Phase("start", 10.0, 11.0, 20.0), Phase("clean up", 20.0, 21.0, 30.0)]
STICKY = next(frontend for seen in all_frontends().values() for frontend in seen if frontend.service.name == "sticky")
PLAIN = next(frontend for seen in all_frontends().values() for frontend in seen if frontend.service.name == CHANGED)


def _timelines() -> dict[str, Timeline]:
    timelines = {service.name: Timeline() for service in SERVICES}
    for timeline in timelines.values():
        timeline.record(0.0, POOL, 0.0)
    return timelines


def _check(*connections: tuple[Frontend, float, str]) -> list[tuple[int, int, int, int]]:
    """Return connections, faults, sticky clients and moved clients of each phase; each connection takes 0.1 s."""
    made = [
        (
            frontend,
            Connection(0, "192.0.2.100", begun, begun + 0.1, server, 8080, 0, NONE if server else "TimeoutError"),
        )
        for frontend, begun, server in connections
    ]
    results = check_phases(PHASES, _timelines(), made)
    return [(result.connections, len(result.faults), result.sticky, result.moved) for result in results]


def test_connections_are_counted_in_the_phase_in_which_they_begin() -> None:
    found = _check(
        (PLAIN, 9.0, "local-1"), (PLAIN, 10.5, "local-1"), (PLAIN, 19.95, "remote-1"), (PLAIN, 21.5, "local-1")
    )
    assert found == [(2, 0, 0, 0), (1, 0, 0, 0)]


def test_no_answer_and_a_removed_endpoint_are_faults() -> None:
    assert _check((PLAIN, 12.0, ""), (PLAIN, 22.0, "local-2")) == [(1, 1, 0, 0), (1, 1, 0, 0)]


def test_sticky_client_may_move_while_a_command_runs_only() -> None:
    found = _check((STICKY, 15.0, "local-1"), (STICKY, 20.5, "remote-1"), (STICKY, 25.0, "remote-1"))
    assert found == [(1, 0, 0, 0), (2, 0, 1, 1)]
    assert _check((STICKY, 15.0, "local-1"), (STICKY, 16.0, "remote-1"))[0] == (2, 1, 0, 0)


def test_connection_across_the_end_of_a_phase_may_already_have_another_endpoint() -> None:
    assert _check((STICKY, 15.0, "local-1"), (STICKY, 19.95, "remote-1"))[0] == (2, 0, 0, 0)


def test_cluster_has_one_node_and_all_services() -> None:
    kinds = [item["kind"] for item in objects()]
    assert kinds.count("Node") == 1
    assert kinds.count("Service") == len(SERVICES)
