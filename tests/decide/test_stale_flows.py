"""UdpFrontends: which conntrack entries of UDP frontends are stale."""

from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from knft.decide.stale_flows import UdpFrontends, _is_node_port, packed_address, packed_socket
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

DNS = ServicePortName("default", "dns", "dns", "UDP")
OTHER = ServicePortName("default", "other", "dns", "UDP")
THIRD = ServicePortName("default", "third", "dns", "UDP")
PORT = ServicePort(
    "10.96.0.10", 53, "UDP", node_port=30053, external_ips=("203.0.113.1",), load_balancer_vips=("203.0.113.2",)
)
ENDPOINT, OTHER_ENDPOINT = packed_socket("10.244.1.11", 5353), packed_socket("10.244.2.11", 5353)
FRONTENDS = [packed_socket(address, 53) for address in ("10.96.0.10", "203.0.113.1", "203.0.113.2")]
NODE = frozenset([packed_address("192.0.2.11")])
NODE_PORT = packed_socket("192.0.2.11", 30053)


def _endpoint(address: str, port: int = 5353, **conditions: Any) -> Endpoint:
    return Endpoint.at(address, port, **conditions)


def _udp_frontends(*endpoints: Endpoint, port: ServicePort = PORT) -> UdpFrontends:
    frontends = UdpFrontends()
    assert frontends.update(DNS, port, endpoints)
    return frontends


@pytest.mark.parametrize("original_destination", [*FRONTENDS, NODE_PORT])
@pytest.mark.parametrize(
    ("conditions", "stale"),
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
    original_destination: bytes, conditions: dict[str, bool], *, stale: bool
) -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11", **conditions), _endpoint("10.244.3.1"))
    assert frontends.is_stale(original_destination, ENDPOINT, NODE) is stale


def test_node_ports_are_counted() -> None:
    """Without any, the node's addresses do not matter."""
    frontends, found = _udp_frontends(port=ServicePort("", 53, "UDP", node_port=30053)), list[bool]()
    changes = [
        (OTHER, ServicePort("", 53, "UDP", node_port=30054)),
        (DNS, None),
        (OTHER, None),
        (DNS, structs.replace(PORT, node_port=0)),
    ]
    for name, port in changes:
        frontends.update(name, port, ())
        found.append(frontends.has_node_ports)
    assert found == [True, True, False, False]


@pytest.mark.parametrize("original_destination", [*FRONTENDS, NODE_PORT])
def test_flow_to_unknown_endpoint_is_stale(original_destination: bytes) -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    assert frontends.is_stale(original_destination, OTHER_ENDPOINT, NODE)
    assert frontends.is_stale(original_destination, packed_socket("10.244.1.11", 5354), NODE)
    # A flow without DNAT has the frontend as its reply source.
    assert frontends.is_stale(original_destination, original_destination, NODE)


@pytest.mark.parametrize("original_destination", [*FRONTENDS, NODE_PORT])
def test_all_flows_of_service_without_endpoints_are_stale(original_destination: bytes) -> None:
    frontends = _udp_frontends()
    assert frontends.is_stale(original_destination, ENDPOINT, NODE)
    assert frontends.is_stale(original_destination, original_destination, NODE)


def test_flows_to_other_ports_and_addresses_are_kept() -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    for original_destination in (
        packed_socket("10.96.0.10", 3000),
        packed_socket("10.96.0.11", 53),
        packed_socket("192.0.2.11", 30054),
        packed_socket("10.96.0.10", 30053),
    ):
        assert not frontends.is_stale(original_destination, OTHER_ENDPOINT, NODE)


def test_node_port_number_at_other_address_is_kept() -> None:
    """The address is another host's, or a node address that does not accept NodePorts."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    other_host = packed_socket("198.51.100.7", 30053)
    assert not frontends.is_stale(other_host, other_host, NODE)
    assert not frontends.is_stale(other_host, OTHER_ENDPOINT, NODE)
    assert not frontends.is_stale(NODE_PORT, NODE_PORT, frozenset())


def test_tcp_ports_have_no_udp_frontends() -> None:
    frontends = UdpFrontends()
    assert not frontends.update(ServicePortName("default", "dns", "dns-tcp", "TCP"), PORT, ())
    assert not frontends
    assert not frontends.is_stale(FRONTENDS[0], ENDPOINT, NODE)


@pytest.mark.parametrize("original_destination", [*FRONTENDS, NODE_PORT])
def test_flows_of_deleted_service_are_stale_until_it_is_forgotten(original_destination: bytes) -> None:
    """Entries that do not lead to one of its endpoints are other programs'."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    assert frontends.update(DNS, None, [_endpoint("10.244.1.11")])
    assert (bool(frontends), frontends.has_node_ports) == (True, True)
    assert frontends.is_stale(original_destination, ENDPOINT, NODE)
    assert not frontends.is_stale(original_destination, OTHER_ENDPOINT, NODE)
    assert not frontends.is_stale(original_destination, original_destination, NODE)
    frontends.forget(frontends.removed())
    assert (bool(frontends), frontends.has_node_ports) == (False, False)
    assert not frontends.is_stale(original_destination, ENDPOINT, NODE)


@pytest.mark.parametrize("original_destination", [*FRONTENDS, NODE_PORT])
def test_flows_to_endpoints_that_a_service_lost_before_its_deletion_are_stale(original_destination: bytes) -> None:
    """Their entries may not be deleted yet, for example because they have no reply."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"), _endpoint("10.244.2.11"))
    frontends.update(DNS, PORT, [_endpoint("10.244.2.11")])
    frontends.update(DNS, PORT, ())
    frontends.update(DNS, None, ())
    assert frontends.is_stale(original_destination, ENDPOINT, NODE)
    assert frontends.is_stale(original_destination, OTHER_ENDPOINT, NODE)
    frontends.forget(frontends.removed())
    assert not frontends.is_stale(original_destination, ENDPOINT, NODE)


def test_removed_node_port_counts_until_it_is_forgotten() -> None:
    """Also if frontends of other kinds were removed after it."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"), port=ServicePort("", 53, "UDP", node_port=30053))
    frontends.update(OTHER, ServicePort("10.96.0.11", 53, "UDP"), [_endpoint("10.244.2.11")])
    frontends.update(DNS, None, ())
    frontends.update(OTHER, None, ())
    assert frontends.has_node_ports
    frontends.forget(frontends.removed())
    assert not frontends.has_node_ports


def test_removed_frontends_of_a_service_share_its_endpoints() -> None:
    """A Service may have thousands of both."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends.update(DNS, None, ())
    assert len({id(endpoints) for endpoints in frontends.removed().values()}) == 1


def test_frontend_of_another_service_is_not_removed() -> None:
    """A Service that is created again with the same frontend keeps its clients."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends.update(DNS, None, ())
    frontends.update(OTHER, PORT, [_endpoint("10.244.1.11")])
    assert not frontends.is_stale(FRONTENDS[0], ENDPOINT, NODE)
    assert frontends.is_stale(FRONTENDS[0], OTHER_ENDPOINT, NODE)


def test_flows_to_a_removed_address_of_a_service_are_kept() -> None:
    """Their endpoint still serves the Service."""
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends.update(DNS, structs.replace(PORT, external_ips=()), [_endpoint("10.244.1.11")])
    assert not frontends.is_stale(packed_socket("203.0.113.1", 53), ENDPOINT, NODE)
    assert frontends.removed() == {}


def test_frontend_that_is_removed_again_is_not_forgotten() -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends.update(DNS, None, ())
    removed = frontends.removed()
    frontends.update(DNS, PORT, [_endpoint("10.244.2.11")])
    frontends.update(DNS, None, ())
    frontends.forget(removed)
    assert frontends.is_stale(FRONTENDS[0], OTHER_ENDPOINT, NODE)


def test_contested_frontend_accepts_endpoints_of_both_services() -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends.update(
        OTHER, ServicePort("10.96.0.11", 53, "UDP", external_ips=("203.0.113.1",)), [_endpoint("10.244.2.11")]
    )
    contested = packed_socket("203.0.113.1", 53)
    assert not frontends.is_stale(contested, ENDPOINT, NODE)
    assert not frontends.is_stale(contested, OTHER_ENDPOINT, NODE)
    frontends.update(DNS, None, ())
    assert frontends.is_stale(contested, ENDPOINT, NODE)
    assert not frontends.is_stale(contested, OTHER_ENDPOINT, NODE)


def test_service_ports_that_share_frontends_and_endpoints_are_removed_one_by_one() -> None:
    """While one is left, its endpoint serves; then nothing of them is left."""
    frontends, names = UdpFrontends(), [DNS, OTHER, THIRD]
    for name in names:
        frontends.update(name, PORT, [_endpoint("10.244.1.11")])
    assert frontends._by_endpoint.names == {ENDPOINT: set(names)}
    for name in names[:-1]:
        frontends.update(name, None, ())
        frontends.forget(frontends.removed())
        assert not frontends.is_stale(NODE_PORT, ENDPOINT, NODE)
        assert frontends.is_stale(NODE_PORT, OTHER_ENDPOINT, NODE)
        assert frontends.has_node_ports
    assert set(frontends._by_key.names) == {*FRONTENDS, NODE_PORT[-2:]}
    frontends.update(THIRD, None, ())
    assert not frontends.is_stale(packed_socket("192.0.2.99", 30053), ENDPOINT, NODE), "an address of another host"
    frontends.forget(frontends.removed())
    assert (frontends._by_key.names, frontends._by_endpoint.names) == ({}, {})
    assert not frontends
    assert not frontends.has_node_ports


def test_irrelevant_change_is_not_reported() -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    assert not frontends.update(DNS, PORT, [_endpoint("10.244.1.11", ready=False, terminating=True)])
    assert not frontends.update(OTHER, None, ())
    assert frontends.update(DNS, PORT, [_endpoint("10.244.1.11"), _endpoint("10.244.2.11")])


def test_has_node_ports_if_a_udp_service_has_one() -> None:
    assert _udp_frontends().has_node_ports
    assert not _udp_frontends(port=ServicePort("10.96.0.10", 53, "UDP")).has_node_ports


class NonIterableDict(dict[Any, Any]):
    """A dictionary that fails the test if it is iterated over, since another thread may change it."""

    def __iter__(self) -> NoReturn:
        pytest.fail("iterated over a dictionary that another thread changes")

    keys = values = items = __iter__


def test_queries_do_not_iterate_over_shared_dictionaries() -> None:
    frontends = _udp_frontends(_endpoint("10.244.1.11"))
    frontends._service_ports = NonIterableDict(frontends._service_ports)
    for index in (frontends._by_key, frontends._by_endpoint):
        index.names = NonIterableDict(index.names)
    assert frontends
    assert frontends.has_node_ports
    assert not frontends.is_stale(NODE_PORT, ENDPOINT, NODE)


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
    updated, fresh = UdpFrontends(), UdpFrontends()
    for step in steps:
        updated.update(*step)
    for step in {name: (name, port, endpoints) for name, port, endpoints in steps}.values():
        fresh.update(*step)
    updated.forget(updated.removed())
    fresh.forget(fresh.removed())
    sockets = [packed_socket(address, port) for address in ADDRESSES for port in (53, 54, 5353, 30053)]
    node = frozenset(map(packed_address, ADDRESSES))
    for original_destination in sockets:
        for reply_source in sockets:
            assert updated.is_stale(original_destination, reply_source, node) == fresh.is_stale(
                original_destination, reply_source, node
            )
    assert bool(updated) == bool(fresh)
    for index, other in ((updated._by_key, fresh._by_key), (updated._by_endpoint, fresh._by_endpoint)):
        assert index.names == other.names
    assert updated.has_node_ports == fresh.has_node_ports == any(map(_is_node_port, updated._by_key.names))
