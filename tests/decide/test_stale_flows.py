"""UdpFrontends: which endpoints a UDP flow may lead to."""

from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.decide.stale_flows import UdpFrontends, _is_node_port, packed_address, packed_socket
from knft.model.endpoint import Endpoint, endpoint_key
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

DNS = ServicePortName("default", "dns", "dns", "UDP")
OTHER = ServicePortName("default", "other", "dns", "UDP")
PORT = ServicePort(
    "10.96.0.10", 53, "UDP", node_port=30053, external_ips=("203.0.113.1",), load_balancer_vips=("203.0.113.2",)
)
HERE, THERE = packed_socket("10.244.1.11", 5353), packed_socket("10.244.2.11", 5353)
FRONTENDS = [packed_socket(address, 53) for address in ("10.96.0.10", "203.0.113.1", "203.0.113.2")]
NODE = frozenset([packed_address("192.0.2.11")])
NODE_PORT = packed_socket("192.0.2.11", 30053)


def _endpoint(address: str, port: int = 5353, **condition: Any) -> Endpoint:
    return Endpoint(address, port, endpoint_key(address, port), **condition)


def _ledger(*endpoints: Endpoint, port: ServicePort = PORT) -> UdpFrontends:
    ledger = UdpFrontends()
    assert ledger.update(DNS, port, endpoints)
    return ledger


@pytest.mark.parametrize("dialled", [*FRONTENDS, NODE_PORT])
@pytest.mark.parametrize(
    ("condition", "stale"),
    [
        ({}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": False, "serving": True}, False),
        ({"is_local": True}, False),
        ({"ready": False, "serving": False}, True),
        ({"ready": False, "serving": False, "terminating": True}, True),
    ],
)
def test_flows_to_serving_endpoints_are_kept_on_every_frontend(
    dialled: bytes, condition: dict[str, bool], *, stale: bool
) -> None:
    ledger = _ledger(_endpoint("10.244.1.11", **condition), _endpoint("10.244.3.1"))
    assert ledger.is_stale(dialled, HERE, NODE) is stale


@pytest.mark.parametrize("dialled", [*FRONTENDS, NODE_PORT])
def test_flow_to_unknown_endpoint_is_stale(dialled: bytes) -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert ledger.is_stale(dialled, THERE, NODE)
    assert ledger.is_stale(dialled, packed_socket("10.244.1.11", 5354), NODE)
    # Not translated: it was sent to the frontend itself.
    assert ledger.is_stale(dialled, dialled, NODE)


@pytest.mark.parametrize("dialled", [*FRONTENDS, NODE_PORT])
def test_all_flows_of_service_without_endpoints_are_stale(dialled: bytes) -> None:
    ledger = _ledger()
    assert ledger.is_stale(dialled, HERE, NODE)
    assert ledger.is_stale(dialled, dialled, NODE)


def test_flows_to_other_ports_and_addresses_are_kept() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    for dialled in (
        packed_socket("10.96.0.10", 3000),
        packed_socket("10.96.0.11", 53),
        packed_socket("192.0.2.11", 30054),
        packed_socket("10.96.0.10", 30053),
    ):
        assert not ledger.is_stale(dialled, THERE, NODE)


def test_node_port_number_at_other_address_is_kept() -> None:
    """At another host's address, translated or not, or at a node address that does not accept NodePorts."""
    ledger = _ledger(_endpoint("10.244.1.11"))
    other_host = packed_socket("198.51.100.7", 30053)
    assert not ledger.is_stale(other_host, other_host, NODE)
    assert not ledger.is_stale(other_host, THERE, NODE)
    assert not ledger.is_stale(NODE_PORT, NODE_PORT, frozenset())


def test_other_protocols_are_ignored() -> None:
    ledger = UdpFrontends()
    assert not ledger.update(ServicePortName("default", "dns", "dns-tcp", "TCP"), PORT, ())
    assert not ledger
    assert not ledger.is_stale(FRONTENDS[0], HERE, NODE)


def test_flows_of_deleted_service_are_kept() -> None:
    """They expire by themselves, as with kube-proxy (docs/behaviour/conntrack.md#stale-udp-entries)."""
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert ledger.update(DNS, None, [_endpoint("10.244.1.11")])
    assert not ledger
    assert not ledger.is_stale(FRONTENDS[0], THERE, NODE)


def test_contested_frontend_accepts_endpoints_of_both_services() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    ledger.update(
        OTHER, ServicePort("10.96.0.11", 53, "UDP", external_ips=("203.0.113.1",)), [_endpoint("10.244.2.11")]
    )
    contested = packed_socket("203.0.113.1", 53)
    assert not ledger.is_stale(contested, HERE, NODE)
    assert not ledger.is_stale(contested, THERE, NODE)
    ledger.update(DNS, None, ())
    assert ledger.is_stale(contested, HERE, NODE)
    assert not ledger.is_stale(contested, THERE, NODE)


def test_irrelevant_change_is_not_reported() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert not ledger.update(DNS, PORT, [_endpoint("10.244.1.11", ready=False, terminating=True)])
    assert not ledger.update(OTHER, None, ())
    assert ledger.update(DNS, PORT, [_endpoint("10.244.1.11"), _endpoint("10.244.2.11")])


def test_has_node_ports() -> None:
    assert _ledger().has_node_ports
    assert not _ledger(port=ServicePort("10.96.0.10", 53, "UDP")).has_node_ports


class NonIterableDict(dict[Any, Any]):
    """A dictionary that fails the test if it is iterated over: another thread may change it meanwhile."""

    def __iter__(self) -> NoReturn:
        pytest.fail("iterated over a dictionary that another thread changes")

    keys = values = items = __iter__


def test_queries_do_not_iterate_over_shared_dictionaries() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    ledger._by_key, ledger._service_ports = NonIterableDict(ledger._by_key), NonIterableDict(ledger._service_ports)
    assert ledger
    assert ledger.has_node_ports
    assert not ledger.is_stale(NODE_PORT, HERE, NODE)


ADDRESSES = [f"10.0.0.{number}" for number in range(1, 5)]
_ports = st.builds(
    ServicePort,
    st.sampled_from(ADDRESSES),
    st.sampled_from([53, 54]),
    st.just("UDP"),
    node_port=st.sampled_from([0, 30053]),
    external_ips=st.lists(st.sampled_from(ADDRESSES), max_size=2).map(tuple),
)
_endpoints = st.lists(st.sampled_from(ADDRESSES).map(_endpoint), max_size=3)
_steps = st.lists(st.tuples(st.sampled_from([DNS, OTHER]), st.none() | _ports, _endpoints), max_size=12)


@given(_steps)
def test_result_depends_only_on_the_current_state(
    steps: Sequence[tuple[ServicePortName, ServicePort | None, list[Endpoint]]],
) -> None:
    lived, fresh = UdpFrontends(), UdpFrontends()
    for step in steps:
        lived.update(*step)
    for step in {name: (name, port, found) for name, port, found in steps}.values():
        fresh.update(*step)
    ends = [packed_socket(address, port) for address in ADDRESSES for port in (53, 54, 5353, 30053)]
    node = frozenset(map(packed_address, ADDRESSES))
    for dialled in ends:
        for answering in ends:
            assert lived.is_stale(dialled, answering, node) == fresh.is_stale(dialled, answering, node)
    assert bool(lived) == bool(fresh)
    assert lived.has_node_ports == fresh.has_node_ports == any(map(_is_node_port, lived._by_key))
