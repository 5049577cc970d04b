"""How ``tests.parity`` compares rules and the results of packets."""

import ipaddress

import pytest
from msgspec.structs import replace

from knft.interpret.outcomes import Disposition, Outcome
from tests.parity.compare_packets import Observations, with_fixed_source
from tests.parity.compare_rules import chains
from tests.parity.dial import DROPPED, REJECTED, Result, Target
from tests.parity.nodes import ParityNode
from tests.parity.packets import packets, sticky_packets
from tests.parity.predicted_results import allowed_kinds, kind_of
from tests.parity.random_cluster import Cluster, Endpoint, Service, Slice
from tests.parity.varying_clients import VARYING, concrete
from tests.support.lab.topology import Lab

# Rules

_JUMP = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"
_A1, _A2, _B = (
    f'-A KUBE-SERVICES -d 10.96.0.{number}/32 -m comment --comment "default/{port} cluster IP" -j KUBE-SVC-{number}'
    for number, port in ((1, "a:http"), (2, "a:http"), (3, "b:http"))
)


def _saved(*rules: str) -> str:
    declared = ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-SVC-1", "KUBE-SVC-2", "KUBE-SVC-3")
    lines = ["*nat", ":PREROUTING ACCEPT [0:0]", *(f":{name} - [0:0]" for name in declared)]
    return "\n".join([*lines, "-A PREROUTING -j KUBE-SERVICES", *rules, "COMMIT"])


def test_order_of_services_does_not_count() -> None:
    assert chains(_saved(_A1, _A2, _B, _JUMP)) == chains(_saved(_B, _A1, _A2, _JUMP))


@pytest.mark.parametrize(
    "rules",
    [(_A2, _A1, _B, _JUMP), (_JUMP, _A1, _A2, _B), (_A1, _A2, _JUMP, _B)],
    ids=["in a Service", "first", "middle"],
)
def test_order_within_a_service_port_and_the_last_jump_count(rules: tuple[str, ...]) -> None:
    assert chains(_saved(_A1, _A2, _B, _JUMP)) != chains(_saved(*rules))


# Packets


@pytest.mark.parametrize(
    ("source", "result", "expected"),
    [
        (VARYING, "local-1:8080 from 198.18.0.7", "local-1:8080 from 198.18.0.1"),
        (VARYING, "local-1:8080 from 10.244.1.1", "local-1:8080 from 10.244.1.1"),
        (VARYING, DROPPED, DROPPED),
        ("198.18.0.7", "local-1:8080 from 198.18.0.7", "local-1:8080 from 198.18.0.7"),
    ],
)
def test_results_of_varying_clients_are_comparable(source: str, result: Result, expected: Result) -> None:
    target = Target("outside", source, "10.96.0.1", 80, "tcp")
    assert with_fixed_source(target, target._replace(source="198.18.0.7"), result) == expected


def test_services_with_affinity_have_packets_of_varying_clients() -> None:
    one = Slice("IPv4", 8080, ("http",), (Endpoint("local-1"),))
    service = Service(1, "NodePort", families=("IPv4",), slices=(one,))
    assert not [target for target in packets(Cluster((service,))) if target.source == VARYING]
    cluster = Cluster((replace(service, affinity_seconds=600),))
    varying = [target for target in packets(cluster) if target.source == VARYING]
    assert {(target.client, target.port) for target in varying} == {
        (client, port) for client in ("outside", "local-4") for port in (80, 30010)
    }
    assert not sticky_packets(cluster).keys() & set(varying)
    assert concrete(varying[0], 0).source == "198.18.0.1"
    assert len({concrete(varying[0], number) for number in range(200)}) == 200


_POD = int(ipaddress.ip_address("10.244.2.11"))


@pytest.mark.parametrize(
    ("client", "outcome", "kinds"),
    [
        ("outside", Outcome(Disposition.DROPPED), {"dropped"}),
        ("outside", Outcome(Disposition.REJECTED), {"refused"}),
        ("outside", Outcome(Disposition.DELIVERED), {"dropped", "refused"}),
        ("outside", Outcome(Disposition.DELIVERED, _POD, 8081, "masqueraded"), {"remote-1:8081 with masquerading"}),
        ("outside", Outcome(Disposition.DELIVERED, _POD, 8081), {"remote-1:8081 without masquerading", "dropped"}),
        ("local-1", Outcome(Disposition.DELIVERED, _POD, 8081), {"remote-1:8081 without masquerading"}),
        ("node", Outcome(Disposition.DELIVERED, _POD, 8081), {"remote-1:8081"}),
    ],
)
def test_results_that_a_reported_difference_allows(client: str, outcome: Outcome, kinds: set[str]) -> None:
    assert allowed_kinds(Target(client, None, "10.96.0.1", 80, "tcp"), outcome) == kinds


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("remote-1:8081 from 192.0.2.100", "remote-1:8081 without masquerading"),
        ("remote-1:8081 from 192.0.2.11", "remote-1:8081 with masquerading"),
        (DROPPED, "dropped"),
        (REJECTED, "refused"),
        ("reset", "refused"),
    ],
)
def test_kind_of_a_result(result: Result, kind: str) -> None:
    assert kind_of(Target("outside", None, "10.96.0.1", 80, "tcp"), result) == kind


def test_result_of_an_expected_difference_must_be_one_that_is_reported() -> None:
    target, other = (Target("outside", None, "10.96.0.1", port, "tcp") for port in (80, 53))
    left, right = (ParityNode(Lab()) for _ in range(2))
    left.name, right.name = "kube-proxy in mode iptables", "knft"
    allowed = {target: {left.name: frozenset({"dropped"}), right.name: frozenset({"refused"})}}
    observed = Observations((left,), right, [target, other], {}, allowed)
    for node, results in ((left, ({DROPPED, REJECTED}, {DROPPED})), (right, ({REJECTED}, {DROPPED}))):
        observed._results[node.name] = list(results)
    assert list(observed.disallowed()) == [(target, left.name, {REJECTED})]
    assert [observed._is_equal(number) for number in (0, 1)] == [False, True]
    observed._results[left.name][0].remove(REJECTED)
    assert list(observed.disallowed()) == []
    assert observed._is_equal(0)


@pytest.mark.parametrize(
    ("result", "endpoint"),
    [
        ("local-1:8080 from 192.0.2.100", ""),
        ("local-3:8080 from 192.0.2.100", "local-3:8080 without masquerading"),
        ("local-1:8080 from 10.244.1.1", "local-1:8080 with masquerading"),
        (DROPPED, ""),
    ],
)
def test_client_with_affinity_has_an_endpoint_of_the_varying_clients(result: Result, endpoint: str) -> None:
    target = Target("outside", None, "10.96.0.1", 80, "tcp")
    left, right = (ParityNode(Lab()) for _ in range(2))
    left.name, right.name = "kube-proxy in mode nftables", "knft"
    observed = Observations((left,), right, [target, target._replace(source=VARYING)], {target: True}, {})
    for node, own in ((left, "local-1:8080 from 192.0.2.100"), (right, result)):
        observed._results[node.name] = [{own}, {f"local-{number}:8080 from 198.18.0.1" for number in (1, 2)}]
    possible = "local-1:8080 without masquerading or local-2:8080 without masquerading"
    expected = [f"knft: outside to 10.96.0.1:80/tcp: {endpoint}, but other clients get {possible}"]
    assert list(observed.strays()) == (expected if endpoint else [])


@pytest.mark.parametrize(
    ("left", "right", "rounds"),
    [
        ({"local-1:8080 from 192.0.2.100"}, {DROPPED}, 8),
        ({REJECTED}, {DROPPED}, 8),
        ({"local-1:8080 from 192.0.2.100"}, {DROPPED, "local-1:8080 from 192.0.2.100"}, 50),
        ({"local-1:8080 from 192.0.2.100"}, {"local-2:8080 from 192.0.2.100"}, 50),
    ],
)
def test_packet_that_is_refused_at_times_is_sent_as_often_as_one_with_several_endpoints(
    left: set[Result], right: set[Result], rounds: int
) -> None:
    target = Target("outside", None, "10.96.0.1", 80, "tcp")
    nodes = [ParityNode(Lab()) for _ in range(2)]
    nodes[0].name, nodes[1].name = "kube-proxy in mode nftables", "knft"
    observed = Observations(nodes[:1], nodes[1], [target], {}, {})
    observed._results = {nodes[0].name: [left], nodes[1].name: [right]}
    assert next(count for count in range(1, 100) if observed._cannot_become_equal(0, count)) == rounds
