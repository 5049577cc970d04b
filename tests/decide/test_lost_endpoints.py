"""LostEndpoints: which connections of Services with ``knft.dev/drain: reset`` are ended."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from knft.decide.frontends import claimed_frontends
from knft.decide.lost_endpoints import LostConnections, LostEndpoints
from knft.decide.stale_flows import packed_address, packed_socket
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

WEB = ServicePortName("default", "web", "http", "TCP")
OTHER = ServicePortName("default", "other", "http", "TCP")
PORT = ServicePort(
    "10.96.0.10", 80, "TCP", node_port=30080, external_ips=("203.0.113.1",), load_balancer_vips=("203.0.113.2",)
)
FRONTENDS = claimed_frontends(PORT)
OTHER_FRONTENDS = claimed_frontends(ServicePort("10.96.0.11", 80, "TCP"))
NODE = frozenset([packed_address("192.0.2.11")])
ADDRESSES = ("10.244.1.1", "10.244.1.2", "10.244.1.3")
TO_WEB = [packed_socket(address, 80) for address in ("10.96.0.10", "203.0.113.1", "203.0.113.2")]
TO_NODE_PORT = packed_socket("192.0.2.11", 30080)
GRACE = 5.0


def _endpoints(*numbers: int, **conditions: Any) -> list[Endpoint]:
    return [Endpoint.at(ADDRESSES[number], 8080, **conditions) for number in numbers]


def _ended(lost: LostConnections, destinations: list[bytes]) -> set[int]:
    """Return the endpoints whose connections to all of the destinations end."""
    return {
        number
        for number, address in enumerate(ADDRESSES)
        if all(lost.contain(each, packed_socket(address, 8080), NODE) for each in destinations)
    }


def test_connections_of_every_frontend_to_a_lost_endpoint_end() -> None:
    lost = LostEndpoints()
    lost.update(WEB, FRONTENDS, _endpoints(0, 1), 10)
    assert lost.next_due(GRACE) is None
    lost.update(WEB, FRONTENDS, _endpoints(1), 20)
    assert lost.next_due(GRACE) == 25
    assert _ended(lost.lost_until(19), TO_WEB) == set()
    found = lost.lost_until(20)
    assert found.names == (WEB,)
    assert found.has_node_port()
    assert found.all_endpoints() == {packed_socket(ADDRESSES[0], 8080)}
    assert _ended(found, [*TO_WEB, TO_NODE_PORT]) == {0}


def test_other_connections_do_not_end() -> None:
    """They are to another port, to the endpoint itself, and to the NodePort's number at another host."""
    lost = LostEndpoints()
    lost.update(WEB, FRONTENDS, _endpoints(0), 0)
    lost.update(OTHER, OTHER_FRONTENDS, _endpoints(0), 0)
    lost.update(WEB, FRONTENDS, (), 1)
    found = lost.lost_until(1)
    others = [("10.96.0.10", 81), ("10.96.0.11", 80), (ADDRESSES[0], 8080), ("198.51.100.1", 30080), ("192.0.2.11", 80)]
    for address, port in others:
        assert _ended(found, [packed_socket(address, port)]) == set()
    assert not found.contain(TO_WEB[0], TO_WEB[0], NODE)


def test_endpoint_that_no_longer_serves_is_not_lost() -> None:
    lost = LostEndpoints()
    lost.update(WEB, FRONTENDS, _endpoints(0, ready=True, serving=True), 0)
    lost.update(WEB, FRONTENDS, _endpoints(0, ready=False, serving=False, terminating=True), 1)
    assert not lost


def test_endpoint_that_comes_back_is_not_lost() -> None:
    """If it is lost again, the time counts from then."""
    lost = LostEndpoints()
    for now, numbers in enumerate([(0, 1), (1,), (0, 1), (1,)]):
        lost.update(WEB, FRONTENDS, _endpoints(*numbers), now)
    assert lost.next_due(GRACE) == 3 + GRACE


def test_removed_service_port_keeps_its_connections() -> None:
    lost = LostEndpoints()
    lost.update(WEB, FRONTENDS, _endpoints(0, 1), 0)
    lost.update(WEB, FRONTENDS, _endpoints(1), 1)
    lost.remove(WEB)
    assert not lost
    lost.update(WEB, FRONTENDS, (), 2)
    assert not lost


def test_forgotten_endpoints_do_not_include_later_ones() -> None:
    lost = LostEndpoints()
    for now, numbers in enumerate([(0, 1), (1,), ()]):
        lost.update(WEB, FRONTENDS, _endpoints(*numbers), now)
    lost.forget_until(1)
    assert _ended(lost.lost_until(2), TO_WEB) == {1}
    lost.forget_until(2)
    assert not lost


_NAMES = (WEB, OTHER)
_changes = st.lists(
    st.tuples(st.sampled_from(_NAMES), st.none() | st.sets(st.sampled_from(range(len(ADDRESSES))))), max_size=12
)


@given(_changes)
def test_endpoint_is_lost_if_it_left_while_the_service_had_the_annotation(changes: list[Any]) -> None:
    """``None`` removes the Service port or its annotation."""
    lost = LostEndpoints()
    history: dict[ServicePortName, list[frozenset[int]]] = {name: [] for name in _NAMES}
    for now, (name, numbers) in enumerate(changes):
        if numbers is None:
            lost.remove(name)
            history[name].clear()
        else:
            lost.update(name, FRONTENDS if name == WEB else OTHER_FRONTENDS, _endpoints(*numbers), now)
            history[name].append(frozenset(numbers))
    found = lost.lost_until(len(changes))
    for name, destinations in ((WEB, TO_WEB), (OTHER, [packed_socket("10.96.0.11", 80)])):
        states = history[name]
        expected = frozenset().union(*states) - states[-1] if states else frozenset()
        assert _ended(found, destinations) == expected
