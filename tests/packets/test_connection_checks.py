"""ConnectionChecker finds each kind of fault, and reports no connection without one."""

from itertools import cycle

import pytest

from tests.support.lab.clients import NONE, Connection
from tests.support.packets.churn import SERVICES, Backend
from tests.support.packets.connection_checks import MAX_ASSIGNED_LATER, ConnectionChecker
from tests.support.packets.frontends import Frontend
from tests.support.packets.timeline import Timeline

SERVICES_BY_NAME = {service.name: service for service in SERVICES}
STAYING, REMOVED, ADDED = Backend("local-1", 8080), Backend("remote-1", 8081), Backend("remote-2", 8082)


def _checker() -> ConnectionChecker:
    """Return a checker of Services with these pools: STAYING and REMOVED; from 10 s STAYING; from 20 s with ADDED."""
    timelines = {name: Timeline() for name in SERVICES_BY_NAME}
    for timeline in timelines.values():
        timeline.record(0.0, (STAYING, REMOVED), 1.0)
        timeline.record(10.0, (STAYING,), 11.0)
        timeline.record(20.0, (STAYING, ADDED), 21.0)
    return ConnectionChecker(timelines)


def _connection(begun: float, backend: Backend, *, retransmissions: int = 0) -> Connection:
    return Connection(0, NONE, begun, begun + 0.1, *backend, retransmissions, NONE)


@pytest.mark.parametrize(
    ("service", "address_kind", "connection", "expected"),
    [
        pytest.param("cluster-policy", "cluster", _connection(5, REMOVED), "", id="endpoint"),
        pytest.param("cluster-policy", "cluster", _connection(10.5, REMOVED), "", id="removed during the connection"),
        pytest.param("cluster-policy", "cluster", _connection(11.5, REMOVED), "not an endpoint", id="already removed"),
        pytest.param("cluster-policy", "cluster", _connection(19.5, ADDED), "not an endpoint", id="not added yet"),
        pytest.param("cluster-policy", "cluster", _connection(20.5, ADDED), "", id="added during the connection"),
        pytest.param(
            "cluster-policy",
            "cluster",
            _connection(5, Backend("local-1", 8081)),
            "not an endpoint",
            id="port of another endpoint",
        ),
        pytest.param(
            "cluster-policy",
            "cluster",
            _connection(5, STAYING, retransmissions=1),
            "retransmission",
            id="retransmission",
        ),
        pytest.param(
            "external-local", "node", _connection(5, REMOVED), "remote endpoint with policy Local", id="remote endpoint"
        ),
        pytest.param("external-local", "node", _connection(5, STAYING), "", id="local endpoint"),
        pytest.param("external-local", "cluster", _connection(5, REMOVED), "", id="remote endpoint, allowed"),
        pytest.param(
            "cluster-policy",
            "cluster",
            Connection(0, NONE, 5, 6, NONE, 0, 0, "TimeoutError"),
            "no answer",
            id="no answer",
        ),
    ],
)
def test_connection_is_checked_against_the_pools_of_its_time(
    service: str, address_kind: str, connection: Connection, expected: str
) -> None:
    checker = _checker()
    checker.check(Frontend("outside", SERVICES_BY_NAME[service], address_kind, 4, "tcp"), connection)
    assert [fault.partition(": ")[0] for fault in checker.faults] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("connections", "expected"),
    [
        pytest.param([_connection(5, STAYING), _connection(25, STAYING)], {"stayed": 2}, id="same endpoint"),
        pytest.param(
            [_connection(5, STAYING), _connection(25, ADDED)],
            {"stayed": 2, "faults": 1},
            id="another endpoint too early",
        ),
        pytest.param(
            [_connection(5, REMOVED), _connection(25, ADDED)],
            {"stayed": 1, "moved": 1},
            id="another endpoint after removal",
        ),
        pytest.param(
            [_connection(5, REMOVED), _connection(10.5, STAYING), _connection(25, ADDED)],
            {"stayed": 2, "moved": 1, "assigned later": 1},
            id="another endpoint after a connection during the removal",
        ),
        pytest.param(
            [_connection(10.5, STAYING), _connection(25, ADDED)],
            {"stayed": 2, "assigned later": 1},
            id="another endpoint after the first connection during a removal",
        ),
        pytest.param(
            [_connection(5, STAYING), _connection(10.5, STAYING), _connection(25, ADDED)],
            {"stayed": 3, "faults": 1},
            id="another endpoint although its own was not removed",
        ),
        pytest.param(
            [_connection(20.5, STAYING), _connection(25, ADDED)],
            {"stayed": 2, "faults": 1},
            id="another endpoint after the first connection during an addition",
        ),
    ],
)
def test_sticky_client_must_stay_until_its_endpoint_is_removed(
    connections: list[Connection], expected: dict[str, int]
) -> None:
    checker = _checker()
    for address_kind, connection in zip(cycle(("cluster", "node")), connections, strict=False):
        checker.check(Frontend("outside", SERVICES_BY_NAME["sticky"], address_kind, 4, "tcp"), connection)
    assert {what: count for what, count in checker.seen.items() if count and what != "during a commit"} == expected


def test_only_few_clients_may_be_assigned_after_a_connection_during_a_removal() -> None:
    checker = _checker()
    frontend = Frontend("outside", SERVICES_BY_NAME["sticky"], "cluster", 4, "tcp")
    for number in range(MAX_ASSIGNED_LATER + 1):
        assert not checker.faults
        for begun, backend in ((5, REMOVED), (10.5, STAYING), (25, ADDED)):
            checker.check(frontend, _connection(begun, backend)._replace(source=str(number)))
    assert [fault.partition(": ")[0] for fault in checker.faults] == ["many clients were assigned later"]
