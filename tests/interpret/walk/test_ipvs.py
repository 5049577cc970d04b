"""IPVS sends packets to real servers at the same hooks as in the kernel."""

from fractions import Fraction

import pytest
from msgspec.structs import replace

from knft.interpret.outcomes import Disposition, Outcome, PacketClass
from knft.interpret.ranges import Ranges, ranges, single
from knft.interpret.rules import Field, Interface, SetMark, Translate, ViaVirtualServer, VirtualServer, Within
from tests.interpret.walk.small_rule_sets import (
    DROP,
    FRONTEND,
    NODE,
    OTHER_POD,
    POD,
    TCP,
    UDP,
    base,
    chain,
    established,
    from_node,
    from_outside,
    hit_rules,
    outcome,
    outcomes,
    paths,
    rule_set,
)

MARK = SetMark(0xFFFFFFFF, 0)
SERVER = VirtualServer(FRONTEND, TCP, 80, "rr", ((POD, 8080, 1),))
BOUND = single(FRONTEND)
LOCAL_SERVER = replace(SERVER, real_servers=((NODE, 8080, 1),))
HOOKS = ("prerouting", "input", "forward", "output", "postrouting")


@pytest.mark.parametrize(
    ("packets", "server", "met"),
    [
        (from_outside(), SERVER, ["prerouting", "input", "IPVS", "output", "postrouting"]),
        (from_outside(), LOCAL_SERVER, ["prerouting", "input", "IPVS"]),
        (from_node(), SERVER, ["output", "IPVS", "output", "postrouting"]),
        (from_node(), LOCAL_SERVER, ["output", "IPVS", "postrouting", "prerouting", "input"]),
    ],
    ids=["to a pod", "to the node", "from the node to a pod", "from the node to itself"],
)
def test_hooks_of_packets_that_ipvs_sends(packets: PacketClass, server: VirtualServer, met: list[str]) -> None:
    """ip_vs_nat_send_or_cont sends remote packets through LOCAL_OUT; local packets continue at the current hook."""
    chains = (base(hook, (MARK,), priority=-150) for hook in HOOKS)  # type: ignore[arg-type] # hooks
    rules = rule_set(*chains, servers=(server,), bound=BOUND)
    found = [rule.partition(":")[0].removeprefix("filter ") for rule in hit_rules(rules, packets)]
    assert found == met


@pytest.mark.parametrize("packets", [from_outside(), established(from_outside())], ids=["new", "established"])
def test_input_filter_runs_before_ipvs(packets: PacketClass) -> None:
    to_frontend = Within(Field.DESTINATION, single(FRONTEND))
    rules = rule_set(base("input", (to_frontend, DROP)), servers=(SERVER,), bound=BOUND)
    assert outcome(rules, packets).disposition is Disposition.DROPPED


def test_dnat_runs_before_ipvs_and_snat_after_it() -> None:
    rules = rule_set(
        base("prerouting", (MARK,), kind="nat"),
        base("input", (DROP,), kind="nat"),
        base("output", (DROP,), kind="nat"),
        base(
            "postrouting",
            (ViaVirtualServer(FRONTEND, TCP, 80), Translate("snat", to_interface_address=True)),
            kind="nat",
        ),
        servers=(SERVER,),
        bound=BOUND,
    )
    assert outcome(rules, from_outside()) == Outcome(Disposition.DELIVERED, POD, 8080, "masqueraded")


def test_packet_from_ipvs_has_no_input_interface_at_output() -> None:
    rules = rule_set(
        base("output", (Interface(Field.INPUT, ("eth0",)), DROP), priority=-150),
        base("postrouting", (Interface(Field.INPUT, ("eth0",)), MARK), name="after"),
        servers=(SERVER,),
        bound=BOUND,
    )
    assert hit_rules(rules, from_outside()) == ["IPVS: virtual server, scheduler rr, 1 real server", "after: 0"]


def test_shares_are_proportional_to_weights() -> None:
    server = replace(SERVER, real_servers=((POD, 8080, 1), (OTHER_POD, 8080, 3), (NODE, 8080, 0)))
    assert outcomes(rule_set(servers=(server,), bound=BOUND), from_outside()) == {
        Outcome(Disposition.DELIVERED, POD, 8080): Fraction(1, 4),
        Outcome(Disposition.DELIVERED, OTHER_POD, 8080): Fraction(3, 4),
    }


@pytest.mark.parametrize("real_servers", [(), ((POD, 8080, 0),)])
def test_virtual_server_without_real_servers_rejects(real_servers: tuple[tuple[int, int, int], ...]) -> None:
    """ip_vs_leave sends an ICMP port unreachable message."""
    rules = rule_set(servers=(replace(SERVER, real_servers=real_servers),), bound=BOUND)
    assert outcome(rules, from_outside()).disposition is Disposition.REJECTED
    assert outcome(rules, from_node()).disposition is Disposition.REJECTED


@pytest.mark.parametrize("packets", [from_outside(port=81), from_outside(protocol=UDP), from_outside(NODE)])
def test_packet_to_no_virtual_server_is_delivered_locally(packets: PacketClass) -> None:
    rules = rule_set(servers=(SERVER,), bound=BOUND)
    assert outcome(rules, packets) == Outcome(Disposition.DELIVERED)


def test_packet_to_another_address_is_forwarded_without_ipvs() -> None:
    assert outcome(rule_set(servers=(SERVER,)), from_outside()) == Outcome(Disposition.DELIVERED)


def test_class_is_split_by_virtual_server_ports() -> None:
    other = replace(SERVER, port=81, real_servers=((OTHER_POD, 8081, 1),))
    rules = rule_set(servers=(SERVER, other), bound=BOUND)
    found = {path.fields.ports: path.outcome for path in paths(rules, from_outside(ports=ranges([(79, 82)])))}
    assert found == {
        single(80): Outcome(Disposition.DELIVERED, POD, 8080),
        single(81): Outcome(Disposition.DELIVERED, OTHER_POD, 8081),
        ranges([(79, 79), (82, 82)]): Outcome(Disposition.DELIVERED),
    }


def test_persistence_selects_the_previous_real_server() -> None:
    server = replace(SERVER, real_servers=((POD, 8080, 1), (OTHER_POD, 8080, 1)), seconds=100)
    rules = rule_set(servers=(server,), bound=BOUND)
    first = paths(rules, from_outside())
    assert {path.outcome.address: path.share for path in first} == {POD: Fraction(1, 2), OTHER_POD: Fraction(1, 2)}
    assert {path.outcome.seconds for path in first} == {100}
    for path in first:
        assert outcomes(rules, from_outside(), path.written_entries) == {path.outcome: Fraction(1)}
        gone = replace(server, real_servers=((NODE, 1, 1),))
        assert outcome(rule_set(servers=(gone,), bound=BOUND), from_outside(), path.written_entries).address == NODE


def test_virtual_server_is_looked_up_after_dnat() -> None:
    nat = base("prerouting", (Translate("dnat", single(FRONTEND), single(80)),), kind="nat")
    rules = rule_set(nat, servers=(SERVER,), bound=BOUND)
    assert outcome(rules, from_outside(NODE, port=90)) == Outcome(Disposition.DELIVERED, POD, 8080)


@pytest.mark.parametrize("sources", [single(FRONTEND), single(NODE), ranges([(0, 99)])])
@pytest.mark.parametrize(("is_source_selected", "source"), [(True, "frontend"), (False, "kept")])
def test_kernel_selects_an_ipvs_address_as_its_own_source(
    sources: Ranges, source: str, *, is_source_selected: bool
) -> None:
    """Unless the process has bound its socket to another address.

    Scenario "masquerade" has that with the node as ``$node.pods``.
    """
    rules = rule_set(servers=(SERVER,), bound=BOUND)
    found = outcome(rules, from_node(sources=sources, is_source_selected=is_source_selected))
    assert found == Outcome(Disposition.DELIVERED, POD, 8080, source)  # type: ignore[arg-type] # one of the words


@pytest.mark.parametrize("is_source_selected", [True, False])
def test_each_packet_of_a_class_to_an_ipvs_address_has_the_outcome_of_the_class(*, is_source_selected: bool) -> None:
    """The kernel's choice of the source must not depend on which part of the class is walked."""
    chains = (chain(name) for name in ("one", "two", "three"))
    rules = rule_set(chains=chains, bound=single(2))
    sources = ranges([(0, 2)])
    packets = from_node(2, 0, sources=sources, is_source_selected=is_source_selected)
    whole = outcome(rules, packets)
    for source in (0, 1, 2):
        one = replace(packets, fields=packets.fields._replace(sources=single(source)))
        assert outcome(rules, one) == whole
