"""Rules put a value of a map into the packet's priority, and look it up elsewhere."""

from fractions import Fraction

import pytest

from knft.interpret.outcomes import Disposition
from knft.interpret.rules import (
    AddToSet,
    Collection,
    Element,
    Field,
    InSet,
    LookUpPriority,
    RandomNumber,
    SetPriority,
    Step,
    Verdict,
    VmapLookup,
)
from tests.interpret.walk.small_rule_sets import ACCEPT, CLIENT, DROP, FRONTEND, base, from_outside, paths, rule_set

IDS = Collection("ids", (Element((FRONTEND, 0), (7,)), Element((FRONTEND, 1), (9,))))
CLIENTS = Collection("clients", is_dynamic=True, seconds=60)
VERDICTS = Collection("verdicts", (Element((7,), DROP),))
REMEMBERED = (Field.SOURCE, Field.PRIORITY)


def _look_up(index: RandomNumber | int) -> LookUpPriority:
    return LookUpPriority("ids", (Field.DESTINATION, index))


def test_each_value_has_its_share_and_its_entry() -> None:
    """A later rule finds the entry that an earlier one has added with the same priority."""
    rules = rule_set(
        base(
            "forward",
            (_look_up(RandomNumber(2)), AddToSet("clients", REMEMBERED)),
            (_look_up(0), InSet("clients", REMEMBERED), DROP),
        ),
        collections=[IDS, CLIENTS],
    )
    found = {path.written_entries: (path.share, path.outcome.disposition) for path in paths(rules, from_outside())}
    assert found == {
        frozenset({("clients", (7,))}): (Fraction(1, 2), Disposition.DROPPED),
        frozenset({("clients", (9,))}): (Fraction(1, 2), Disposition.DELIVERED),
    }


def test_entry_of_the_client_is_found() -> None:
    rules = rule_set(base("forward", (_look_up(1), InSet("clients", REMEMBERED), DROP)), collections=[IDS, CLIENTS])
    (known,) = paths(rules, from_outside(), frozenset({("clients", (9,))}))
    (other,) = paths(rules, from_outside(), frozenset({("clients", (7,))}))
    assert (known.outcome.disposition, other.outcome.disposition) == (Disposition.DROPPED, Disposition.DELIVERED)


def test_rule_ends_for_packets_without_a_value() -> None:
    rules = rule_set(base("forward", (_look_up(RandomNumber(4)), DROP)), collections=[IDS])
    found = sorted((path.outcome.disposition.value, path.share) for path in paths(rules, from_outside()))
    assert found == [("delivered", Fraction(1, 4)), ("delivered", Fraction(1, 4)), *[("dropped", Fraction(1, 4))] * 2]


@pytest.mark.parametrize(
    "step",
    [
        InSet("clients", REMEMBERED),
        InSet("clients", REMEMBERED, inverted=True),
        AddToSet("clients", REMEMBERED),
        VmapLookup("verdicts", (Field.PRIORITY,)),
    ],
)
@pytest.mark.parametrize("before", [(), (SetPriority(None),)], ids=["never set", "not interpreted"])
def test_packets_whose_priority_is_unknown_are_undecided(step: Step, before: tuple[Step, ...]) -> None:
    rules = rule_set(base("forward", (*before, step, ACCEPT)), collections=[CLIENTS, VERDICTS])
    (path,) = paths(rules, from_outside(sources=((CLIENT, CLIENT),)))
    assert path.outcome.disposition is Disposition.UNDECIDED


@pytest.mark.parametrize(("priority", "verdict"), [(7, DROP), (8, ACCEPT)])
def test_constant_priority_is_looked_up(priority: int, verdict: Verdict) -> None:
    rules = rule_set(
        base("forward", (SetPriority(priority), VmapLookup("verdicts", (Field.PRIORITY,)))), collections=[VERDICTS]
    )
    (path,) = paths(rules, from_outside())
    expected = Disposition.DROPPED if verdict == DROP else Disposition.DELIVERED
    assert path.outcome.disposition is expected
