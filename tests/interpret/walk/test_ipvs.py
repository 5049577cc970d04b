"""IPVS takes packets to virtual servers where the kernel has it do so, and sends them on."""

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

NOTE = SetMark(0xFFFFFFFF, 0)
SERVER = VirtualServer(FRONTEND, TCP, 80, "rr", ((POD, 8080, 1),))
BOUND = single(FRONTEND)
HERE = replace(SERVER, real_servers=((NODE, 8080, 1),))
HOOKS = ("prerouting", "input", "forward", "output", "postrouting")


@pytest.mark.parametrize(
    ("packets", "server", "met"),
    [
        (from_outside(), SERVER, ["prerouting", "input", "output", "postrouting"]),
        (from_outside(), HERE, ["prerouting", "input"]),
        (from_node(), SERVER, ["output", "output", "postrouting"]),
        (from_node(), HERE, ["output", "postrouting", "prerouting", "input"]),
    ],
    ids=["to a pod", "to the node", "from the node to a pod", "from the node to itself"],
)
def test_hooks_of_packets_that_ipvs_sends(packets: PacketClass, server: VirtualServer, met: list[str]) -> None:
    """ip_vs_nat_send_or_cont: to others by LOCAL_OUT, from its beginning; to itself it goes on where it is."""
    chains = (base(hook, (NOTE,), priority=-150) for hook in HOOKS)  # type: ignore[arg-type] # hooks
    rules = rule_set(*chains, servers=(server,), bound=BOUND)
    assert hit_rules(rules, packets) == [f"filter {hook}: 0" for hook in met]


@pytest.mark.parametrize("packets", [from_outside(), established(from_outside())], ids=["new", "established"])
def test_filters_at_input_come_before_ipvs(packets: PacketClass) -> None:
    dialled = Within(Field.DESTINATION, single(FRONTEND))
    rules = rule_set(base("input", (dialled, DROP)), servers=(SERVER,), bound=BOUND)
    assert outcome(rules, packets).disposition is Disposition.DROPPED


def test_nat_is_asked_for_the_destination_before_and_for_the_source_after() -> None:
    rules = rule_set(
        base("prerouting", (NOTE,), kind="nat"),
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


def test_a_packet_that_ipvs_sends_has_come_in_by_nothing_at_output() -> None:
    rules = rule_set(
        base("output", (Interface(Field.INPUT, ("eth0",)), DROP), priority=-150),
        base("postrouting", (Interface(Field.INPUT, ("eth0",)), NOTE), name="after"),
        servers=(SERVER,),
        bound=BOUND,
    )
    assert hit_rules(rules, from_outside()) == ["after: 0"]


def test_shares_follow_weights_and_nobody_gets_a_packet_at_weight_nothing() -> None:
    server = replace(SERVER, real_servers=((POD, 8080, 1), (OTHER_POD, 8080, 3), (NODE, 8080, 0)))
    assert outcomes(rule_set(servers=(server,), bound=BOUND), from_outside()) == {
        Outcome(Disposition.DELIVERED, POD, 8080): Fraction(1, 4),
        Outcome(Disposition.DELIVERED, OTHER_POD, 8080): Fraction(3, 4),
    }


@pytest.mark.parametrize("targets", [(), ((POD, 8080, 0),)])
def test_a_server_without_targets_refuses(targets: tuple[tuple[int, int, int], ...]) -> None:
    """ip_vs_leave sends "port unreachable"."""
    rules = rule_set(servers=(replace(SERVER, real_servers=targets),), bound=BOUND)
    assert outcome(rules, from_outside()).disposition is Disposition.REJECTED
    assert outcome(rules, from_node()).disposition is Disposition.REJECTED


@pytest.mark.parametrize("packets", [from_outside(port=81), from_outside(protocol=UDP), from_outside(NODE)])
def test_what_is_no_servers_stays_on_the_node(packets: PacketClass) -> None:
    rules = rule_set(servers=(SERVER,), bound=BOUND)
    assert outcome(rules, packets) == Outcome(Disposition.DELIVERED)


def test_an_address_that_is_not_bound_is_forwarded_past_ipvs() -> None:
    assert outcome(rule_set(servers=(SERVER,)), from_outside()) == Outcome(Disposition.DELIVERED)


def test_ports_of_a_class_are_told_apart() -> None:
    other = replace(SERVER, port=81, real_servers=((OTHER_POD, 8081, 1),))
    rules = rule_set(servers=(SERVER, other), bound=BOUND)
    found = {path.fields.ports: path.outcome for path in paths(rules, from_outside(ports=ranges([(79, 82)])))}
    assert found == {
        single(80): Outcome(Disposition.DELIVERED, POD, 8080),
        single(81): Outcome(Disposition.DELIVERED, OTHER_POD, 8081),
        ranges([(79, 79), (82, 82)]): Outcome(Disposition.DELIVERED),
    }


def test_a_persistent_server_sends_a_client_where_it_was() -> None:
    server = replace(SERVER, real_servers=((POD, 8080, 1), (OTHER_POD, 8080, 1)), seconds=100)
    rules = rule_set(servers=(server,), bound=BOUND)
    first = paths(rules, from_outside())
    assert {path.outcome.address: path.share for path in first} == {POD: Fraction(1, 2), OTHER_POD: Fraction(1, 2)}
    assert {path.outcome.seconds for path in first} == {100}
    for path in first:
        assert outcomes(rules, from_outside(), path.written_entries) == {path.outcome: Fraction(1)}
        gone = replace(server, real_servers=((NODE, 1, 1),))
        assert outcome(rule_set(servers=(gone,), bound=BOUND), from_outside(), path.written_entries).address == NODE


def test_what_nat_has_translated_is_looked_for_by_its_new_destination() -> None:
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
    """The walk used to derive the kernel's choice from the sources, so a class fared unlike its packets."""
    chains = (chain(name) for name in ("one", "two", "three"))
    rules = rule_set(chains=chains, bound=single(2))
    sources = ranges([(0, 2)])
    packets = from_node(2, 0, sources=sources, is_source_selected=is_source_selected)
    whole = outcome(rules, packets)
    for source in (0, 1, 2):
        one = replace(packets, fields=packets.fields._replace(sources=single(source)))
        assert outcome(rules, one) == whole
