"""Labels of clients that source ranges allow or exclude: their networks, whatever addresses the node has there."""

import pytest

from knft.explain.client_networks import client_labels
from knft.explain.outcomes import ClientOutcome
from knft.interpret.ranges import Ranges, network, ranges, single, subtract
from tests.support.explain_sources import NODE_IP, explained, of_objects, of_rules
from tests.support.kube_objects import endpoint, endpoint_slice, ingress, service

VIP, BRIDGE, TUNNEL = "203.0.113.50", "10.244.1.1", "10.244.1.0"
DROPPED = "is dropped: the source is not in loadBalancerSourceRanges"
POD_NETWORK = network(0x0AF40100, 24, 32)
"""10.244.1.0/24, the pod CIDR of the node."""
PODS = network(0x0AF40000, 16, 32)


def outcomes_of(*allowed: str, rules: bool = False, own: tuple[str, ...] = ()) -> dict[tuple[str, str], str]:
    """Return what each client gets at the load balancer IP, by kind and label."""
    objects = (
        service(type="LoadBalancer", ingresses=(ingress(VIP),), load_balancer_source_ranges=allowed),
        endpoint_slice("web-1", endpoint("10.244.1.3", node="node-1")),
    )
    found = explained(f"{VIP}:80", (of_rules if rules else of_objects)(*objects, own=own))
    (outcomes,) = (each.outcomes for each in found.ports[0].frontends if each.at == VIP)
    named = {_client(each): each.text for each in outcomes}
    assert len(named) == len(outcomes)
    return named


def _client(outcome: ClientOutcome) -> tuple[str, str]:
    return outcome.client, outcome.which


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("own", [(), (BRIDGE,), (TUNNEL, BRIDGE)])
def test_pod_range_of_the_node_is_named(own: tuple[str, ...], rules: bool) -> None:  # noqa: FBT001 - a parameter
    """The node's addresses, and the endpoint that gets itself, are no gap in its name."""
    found = outcomes_of("10.244.1.0/24", rules=rules, own=own)
    assert found["pod", "10.244.1.0/24"].startswith("reaches 10.244.1.3:")
    assert found["pod", "others"] == DROPPED
    assert found["outside", ""] == DROPPED


def test_load_balancer_ip_is_no_client() -> None:
    """The rules allow it as the source if a range has the node's address, for packets of the node alone."""
    found = outcomes_of(f"{NODE_IP}/32")
    assert {client: text for client, text in found.items() if client[0] != "node"} == {
        ("pod", ""): DROPPED,
        ("outside", ""): DROPPED,
    }
    assert found["node", ""].startswith("reaches 10.244.1.3:")


def test_source_ranges_are_those_of_the_service() -> None:
    objects = (
        service(type="LoadBalancer", ingresses=(ingress(VIP),), load_balancer_source_ranges=("192.0.2.0/24",)),
        endpoint_slice("web-1", "10.244.2.11"),
    )
    assert explained("web", of_objects(*objects)).ports[0].source_ranges == ("192.0.2.0/24",)


def _pieces(*numbers: int) -> Ranges:
    return ranges(pair for number in numbers for pair in single(number))


class TestLabels:
    """Labels of groups of clients."""

    def test_only_group_needs_none(self) -> None:
        assert client_labels(4, [POD_NETWORK], ()) == [""]

    def test_several_groups_with_many_networks(self) -> None:
        """Only the largest group is ``others``; an address that another group has stays out of a network."""
        scattered = _pieces(0x0AF40101, 0x0AF40103, 0x0AF40105, 0x0AF40107, 0x0AF40109)
        assert client_labels(4, [scattered, subtract(PODS, scattered)], ()) == [
            "10.244.1.1/32, 10.244.1.3/32, 10.244.1.5/32 and 2 more networks",
            "others",
        ]

    def test_network_is_no_larger_than_its_clients_need(self) -> None:
        """127.0.0.0/8 is free of clients, and next to the range."""
        absent = network(127 << 24, 8, 32)
        low = network(126 << 24, 8, 32)
        assert client_labels(4, [low, POD_NETWORK], absent) == ["126.0.0.0/8", "10.244.1.0/24"]
