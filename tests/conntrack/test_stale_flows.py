"""FlowLedger: whom a flow may lead to."""

from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.decide.stale_flows import FlowLedger, _is_node_port, end, packed
from knft.model.endpoint import Endpoint, endpoint_key
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort

DNS = ServicePortName("default", "dns", "dns", "UDP")
OTHER = ServicePortName("default", "other", "dns", "UDP")
PORT = ServicePort(
    "10.96.0.10", 53, "UDP", node_port=30053, external_ips=("203.0.113.1",), load_balancer_vips=("203.0.113.2",)
)
HERE, THERE = end("10.244.1.11", 5353), end("10.244.2.11", 5353)
FRONTENDS = [end(address, 53) for address in ("10.96.0.10", "203.0.113.1", "203.0.113.2")]
NODE = frozenset([packed("192.0.2.11")])
NODE_PORT = end("192.0.2.11", 30053)


def _endpoint(address: str, port: int = 5353, **condition: Any) -> Endpoint:
    return Endpoint(address, port, endpoint_key(address, port), **condition)


def _ledger(*endpoints: Endpoint, port: ServicePort = PORT) -> FlowLedger:
    ledger = FlowLedger()
    assert ledger.note(DNS, port, endpoints)
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
def test_endpoints_that_serve_keep_their_flows_on_every_frontend(
    dialled: bytes, condition: dict[str, bool], *, stale: bool
) -> None:
    ledger = _ledger(_endpoint("10.244.1.11", **condition), _endpoint("10.244.3.1"))
    assert ledger.is_stale(dialled, HERE, NODE) is stale


@pytest.mark.parametrize("dialled", [*FRONTENDS, NODE_PORT])
def test_a_flow_to_whoever_is_no_endpoint_is_stale(dialled: bytes) -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert ledger.is_stale(dialled, THERE, NODE)
    assert ledger.is_stale(dialled, end("10.244.1.11", 5354), NODE)
    # Never translated: it went to the frontend itself.
    assert ledger.is_stale(dialled, dialled, NODE)


@pytest.mark.parametrize("dialled", [*FRONTENDS, NODE_PORT])
def test_without_any_endpoint_every_flow_is_stale(dialled: bytes) -> None:
    ledger = _ledger()
    assert ledger.is_stale(dialled, HERE, NODE)
    assert ledger.is_stale(dialled, dialled, NODE)


def test_other_ports_and_other_addresses_are_nobodys_business() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    for dialled in (end("10.96.0.10", 3000), end("10.96.0.11", 53), end("192.0.2.11", 30054), end("10.96.0.10", 30053)):
        assert not ledger.is_stale(dialled, THERE, NODE)


def test_a_strangers_port_of_the_same_number_is_no_node_port() -> None:
    """Through the node to somebody else, translated or not; or to the node, where that address accepts none."""
    ledger = _ledger(_endpoint("10.244.1.11"))
    stranger = end("198.51.100.7", 30053)
    assert not ledger.is_stale(stranger, stranger, NODE)
    assert not ledger.is_stale(stranger, THERE, NODE)
    assert not ledger.is_stale(NODE_PORT, NODE_PORT, frozenset())


def test_other_protocols_are_left_alone() -> None:
    ledger = FlowLedger()
    assert not ledger.note(ServicePortName("default", "dns", "dns-tcp", "TCP"), PORT, ())
    assert not ledger
    assert not ledger.is_stale(FRONTENDS[0], HERE, NODE)


def test_a_service_that_is_gone_judges_no_flow() -> None:
    """Its flows end by themselves, as with kube-proxy (F.1)."""
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert ledger.note(DNS, None, [_endpoint("10.244.1.11")])
    assert not ledger
    assert not ledger.is_stale(FRONTENDS[0], THERE, NODE)


def test_of_two_claimants_either_ones_endpoints_will_do() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    ledger.note(OTHER, ServicePort("10.96.0.11", 53, "UDP", external_ips=("203.0.113.1",)), [_endpoint("10.244.2.11")])
    contested = end("203.0.113.1", 53)
    assert not ledger.is_stale(contested, HERE, NODE)
    assert not ledger.is_stale(contested, THERE, NODE)
    ledger.note(DNS, None, ())
    assert ledger.is_stale(contested, HERE, NODE)
    assert not ledger.is_stale(contested, THERE, NODE)


def test_what_changes_no_judgement_is_no_change() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    assert not ledger.note(DNS, PORT, [_endpoint("10.244.1.11", ready=False, terminating=True)])
    assert not ledger.note(OTHER, None, ())
    assert ledger.note(DNS, PORT, [_endpoint("10.244.1.11"), _endpoint("10.244.2.11")])


def test_it_says_whether_there_are_node_ports() -> None:
    assert _ledger().has_node_ports
    assert not _ledger(port=ServicePort("10.96.0.10", 53, "UDP")).has_node_ports


class Unlisted(dict[Any, Any]):
    """A dictionary that nobody may go through, because another thread may change it meanwhile."""

    def __iter__(self) -> NoReturn:
        pytest.fail("somebody goes through what another thread changes")

    keys = values = items = __iter__


def test_who_asks_goes_through_nothing_that_who_notes_changes() -> None:
    ledger = _ledger(_endpoint("10.244.1.11"))
    ledger._by_key, ledger._noted = Unlisted(ledger._by_key), Unlisted(ledger._noted)
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
def test_only_the_present_counts_whatever_came_before(
    steps: Sequence[tuple[ServicePortName, ServicePort | None, list[Endpoint]]],
) -> None:
    lived, fresh = FlowLedger(), FlowLedger()
    for step in steps:
        lived.note(*step)
    for step in {name: (name, port, found) for name, port, found in steps}.values():
        fresh.note(*step)
    ends = [end(address, port) for address in ADDRESSES for port in (53, 54, 5353, 30053)]
    node = frozenset(map(packed, ADDRESSES))
    for dialled in ends:
        for answering in ends:
            assert lived.is_stale(dialled, answering, node) == fresh.is_stale(dialled, answering, node)
    assert bool(lived) == bool(fresh)
    assert lived.has_node_ports == fresh.has_node_ports == any(map(_is_node_port, lived._by_key))
