"""Each type of test and action works as in the kernel."""

from fractions import Fraction
from typing import Any, get_args

import pytest

from knft.interpret.outcomes import Disposition, Outcome, PacketClass
from knft.interpret.ranges import Ranges, ranges, single
from knft.interpret.rules import (
    Action,
    AddressType,
    Field,
    HasState,
    Hook,
    Interface,
    Marked,
    Never,
    Probability,
    SetMark,
    State,
    Step,
    Test,
    Unknown,
    ViaVirtualServer,
    Within,
)
from knft.interpret.walk.matching import EVALUATORS
from knft.interpret.walk.walker import Walker
from tests.interpret.walk.small_rule_sets import (
    CLIENT,
    DROP,
    FRONTEND,
    ICMP,
    NODE,
    REJECT,
    base,
    from_node,
    from_outside,
    outcome,
    outcomes,
    paths,
    rule_set,
)
from tests.support.stable_repr import stable_repr

MULTICAST = 0xE0000001


def passes(packets: PacketClass, *tests: Step) -> bool:
    """Tell whether all packets pass the tests at their first hook."""
    hook: Hook = "output" if packets.origin == "node" else "prerouting"
    fate = outcome(rule_set(base(hook, (*tests, DROP))), packets).disposition
    assert fate in (Disposition.DROPPED, Disposition.DELIVERED)
    return fate is Disposition.DROPPED


@pytest.mark.parametrize(
    ("packets", "test"),
    [
        (from_outside(), Within(Field.SOURCE, single(CLIENT))),
        (from_outside(), Within(Field.DESTINATION, ranges([(FRONTEND - 1, FRONTEND + 1)]))),
        (from_outside(), Within(Field.PROTOCOL, single(6))),
        (from_outside(), Within(Field.DESTINATION_PORT, single(80))),
        (from_outside(source_ports=single(5)), Within(Field.SOURCE_PORT, ranges([(5, 9)]))),
        (from_outside(), Within(Field.ORIGINAL_SOURCE, single(CLIENT))),
        (from_outside(), Within(Field.ORIGINAL_DESTINATION, single(FRONTEND))),
        (from_outside(), Within(Field.ORIGINAL_PORT, single(80))),
        (from_outside(), Interface(Field.INPUT, ("veth*", "eth0"))),
        (from_outside(), Interface(Field.INPUT, ("e*",))),
        (from_outside(), Marked(0xFF, single(0))),
        (from_outside(), HasState(frozenset({"new", "related"}))),
        (from_outside(), AddressType(Field.DESTINATION, frozenset({"unicast"}))),
        (from_outside(NODE), AddressType(Field.DESTINATION, frozenset({"local", "broadcast"}))),
        (from_outside(MULTICAST), AddressType(Field.DESTINATION, frozenset({"multicast"}))),
        (from_outside(), AddressType(Field.SOURCE, frozenset({"unicast"}))),
        (from_node(), AddressType(Field.SOURCE, frozenset({"local"}))),
        (from_node(), Interface(Field.OUTPUT, ("eth0",))),
    ],
    ids=stable_repr,
)
def test_match_passes_and_inverted_match_fails(packets: PacketClass, test: Test) -> None:
    inverted = type(test)(**{name: getattr(test, name) for name in test.__struct_fields__} | {"inverted": True})
    assert passes(packets, test)
    assert not passes(packets, inverted)


@pytest.mark.parametrize(
    "test",
    [
        Within(Field.SOURCE, single(CLIENT + 1)),
        Within(Field.DESTINATION_PORT, ()),
        Interface(Field.INPUT, ("eth",)),
        Marked(0xFF, single(1)),
        HasState(frozenset({"established"})),
        AddressType(Field.DESTINATION, frozenset({"local"})),
        ViaVirtualServer(FRONTEND, 6, 80),
        Never(),
    ],
    ids=stable_repr,
)
def test_match_fails(test: Test) -> None:
    assert not passes(from_outside(), test)


def test_every_type_of_step_has_an_implementation() -> None:
    """A new type of step without an implementation fails this test."""
    carried_out = {*EVALUATORS, *Walker(rule_set())._actions._executors}
    assert carried_out == {*get_args(Test), *get_args(Action)}


@pytest.mark.parametrize("inverted", [False, True])
def test_packet_without_ports_fails_all_port_tests(*, inverted: bool) -> None:
    assert not passes(from_outside(protocol=ICMP), Within(Field.DESTINATION_PORT, single(80), inverted))


@pytest.mark.parametrize(
    ("pattern", "inverted", "does_pass"),
    [("eth0", False, False), ("eth0", True, True), ("*", False, True), ("*", True, False)],
)
def test_node_packet_has_an_empty_input_interface(pattern: str, *, inverted: bool, does_pass: bool) -> None:
    """The kernel compares the empty name, so an inverted test passes (scenarios "masquerade 4" and "masquerade 5")."""
    assert passes(from_node(), Interface(Field.INPUT, (pattern,), inverted)) is does_pass


STATES: frozenset[State] = frozenset({"new", "established"})
NEW: frozenset[State] = frozenset({"new"})


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize(
    ("test", "passing", "failing"),
    [
        (Within(Field.SOURCE, ranges([(3, 5)])), {"sources": ranges([(3, 5)])}, {"sources": ranges([(0, 2), (6, 9)])}),
        (Within(Field.DESTINATION_PORT, single(80)), {"ports": single(80)}, {"ports": ranges([(79, 79), (81, 81)])}),
        (Within(Field.SOURCE_PORT, single(1)), {"source_ports": single(1)}, {"source_ports": single(2)}),
        (Interface(Field.INPUT, ("v*",)), {"inputs": frozenset({"v1"})}, {"inputs": frozenset({"e1"})}),
        (Interface(Field.OUTPUT, ("v1",)), {"outputs": frozenset({"v1"})}, {"outputs": frozenset({"e1"})}),
        (HasState(NEW), {"states": NEW}, {"states": STATES - NEW}),
    ],
    ids=stable_repr,
)
def test_class_is_split_if_some_packets_pass(
    test: Test, passing: dict[str, Any], failing: dict[str, Any], *, inverted: bool
) -> None:
    fields = {name: getattr(test, name) for name in test.__struct_fields__} | {"inverted": inverted}
    whole = from_outside(
        sources=ranges([(0, 9)]),
        ports=ranges([(79, 81)]),
        source_ports=ranges([(1, 2)]),
        inputs=frozenset({"v1", "e1"}),
        outputs=frozenset({"v1", "e1"}),
        states=STATES,
    )
    rules = rule_set(base("forward", (type(test)(**fields), DROP)))
    found = {path.outcome.disposition: path.fields for path in paths(rules, whole)}
    dropped, others = (failing, passing) if inverted else (passing, failing)
    assert found == {
        Disposition.DROPPED: whole.fields._replace(**dropped),
        Disposition.DELIVERED: whole.fields._replace(**others),
    }


@pytest.mark.parametrize(
    ("steps", "mark"),
    [
        ((), 0),
        ((SetMark(0, 0x4000),), 0x4000),
        ((SetMark(0xFFFFFFFF, 0x4000),), 0x4000),
        ((SetMark(0, 0x4001), SetMark(0xFFFFBFFF, 0)), 1),
        ((SetMark(0, 0x6), SetMark(0xFFFFFFFF, 0x3)), 0x5),
    ],
)
def test_set_mark(steps: tuple[Step, ...], mark: int) -> None:
    rules = rule_set(base("prerouting", steps), base("forward", (Marked(0xFFFFFFFF, single(mark)), DROP)))
    assert outcome(rules, from_outside()).disposition is Disposition.DROPPED


def test_mark_is_matched_with_a_mask() -> None:
    rules = rule_set(base("prerouting", (SetMark(0, 0x4001),)), base("forward", (Marked(0x4000, single(0x4000)), DROP)))
    assert outcome(rules, from_outside()).disposition is Disposition.DROPPED


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(1, 3), Fraction(1)])
def test_probability_splits_shares_and_omits_empty_ones(probability: Fraction) -> None:
    found = outcomes(rule_set(base("forward", (Probability(probability), DROP))), from_outside())
    wanted = {Outcome(Disposition.DROPPED): probability, Outcome(Disposition.DELIVERED): 1 - probability}
    assert found == {result: share for result, share in wanted.items() if share}


def test_successive_probabilities_apply_to_the_remaining_packets() -> None:
    """kube-proxy distributes connections this way: 1/3, then 1/2 of the rest, then all remaining ones."""
    rules = rule_set(base("forward", (Probability(Fraction(1, 3)), DROP), (Probability(Fraction(1, 2)), REJECT)))
    assert set(outcomes(rules, from_outside()).values()) == {Fraction(1, 3)}


def test_packets_that_reach_an_unknown_step_are_undecided() -> None:
    rules = rule_set(base("forward", (Unknown("quota"), Within(Field.SOURCE, single(CLIENT + 1)), DROP)))
    assert outcome(rules, from_outside()).disposition is Disposition.DELIVERED
    assert outcome(rules, from_outside(sources=single(CLIENT + 1))).disposition is Disposition.UNDECIDED


def test_rule_without_action_has_no_effect_unless_unknown() -> None:
    known = rule_set(base("forward", (Within(Field.SOURCE, single(CLIENT)),)))
    assert outcome(known, from_outside()).disposition is Disposition.DELIVERED
    assert (
        outcome(rule_set(base("forward", (Unknown("synproxy"),))), from_outside()).disposition is Disposition.UNDECIDED
    )


@pytest.mark.parametrize("sources", [single(CLIENT), ranges([(0, 99)])])
def test_actions_before_a_verdict_are_carried_out_once(sources: Ranges) -> None:
    """Even if the class is split between them."""
    flip = SetMark(0xFFFFFFFF, 1)
    rules = rule_set(
        base("prerouting", (flip, Probability(Fraction(1, 2)), Within(Field.SOURCE, single(CLIENT)), flip)),
        base("forward", (Marked(1, single(1)), DROP)),
    )
    found = paths(rules, from_outside(sources=sources))
    met = {path.outcome.disposition for path in found if path.fields.sources == single(CLIENT)}
    # Packets that passed the probability test are split, the others are not.
    whole = {path.outcome.disposition for path in found if path.fields.sources == ranges([(0, 99)])}
    assert (met, whole) == (
        ({Disposition.DELIVERED, Disposition.DROPPED}, set())
        if sources == single(CLIENT)
        else ({Disposition.DELIVERED}, {Disposition.DROPPED})
    )
