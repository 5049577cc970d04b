"""Lookups split a packet class where its packets find different elements."""

from collections.abc import Iterable
from fractions import Fraction

import pytest

from knft.interpret.compare.partition import outcome_shares, partition
from knft.interpret.outcomes import Disposition, Outcome, PacketClass
from knft.interpret.ranges import contains, ranges
from knft.interpret.rules import (
    AddToSet,
    Collection,
    DnatMapLookup,
    Element,
    Field,
    InSet,
    KeyPart,
    RandomNumber,
    RuleSet,
    Verdict,
    VmapLookup,
)
from knft.interpret.walk.index import covers
from tests.interpret.walk.small_rule_sets import (
    CLIENT,
    DROP,
    ICMP,
    POD,
    REJECT,
    base,
    chain,
    from_outside,
    outcome,
    outcomes,
    paths,
    rule_set,
)

SOURCE, PORT = Field.SOURCE, Field.DESTINATION_PORT
WIDE = from_outside(sources=ranges([(0, 9)]), ports=ranges([(0, 9)]))


def drop_if_in_set(key: tuple[KeyPart, ...], *elements: Element, inverted: bool = False) -> RuleSet:
    """Return a rule set that drops packets whose key is in a set."""
    rule = (InSet("set", key, inverted), DROP)
    return rule_set(base("forward", rule), collections=[Collection("set", elements)])


def dispositions(rules: RuleSet, packets: PacketClass) -> dict[tuple[int, int], Disposition]:
    """Return the disposition by source and port, for ten of each; the shares of each packet must sum to one."""
    found: dict[tuple[int, int], Disposition] = {}
    for piece in partition(paths(rules, packets), ()):
        ((result, share),) = outcome_shares(piece.left)
        assert share == 1
        for source in range(10):
            for port in range(10):
                if contains(piece.fields.sources, source) and contains(piece.fields.ports, port):
                    assert (source, port) not in found
                    found[source, port] = result.disposition
    return found


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        [],
        [(3, 4)],
        [(3, 4), (3, 5), (4, 4)],
        [((2, 5), 4), ((7, 8), (0, 3))],
        [((0, 9), (0, 9))],
        [((2, 5), 1), (3, 4), ((3, 7), 6)],
    ],
    ids=str,
)
def test_set_key_with_two_variable_parts(keys: list[tuple[int | tuple[int, int], ...]], *, inverted: bool) -> None:
    rules = drop_if_in_set((SOURCE, PORT), *(Element(key) for key in keys), inverted=inverted)
    for point, fate in dispositions(rules, WIDE).items():
        is_in = any(all(map(covers, key, point)) for key in keys)
        assert fate is (Disposition.DROPPED if is_in is not inverted else Disposition.DELIVERED), point
    assert len(dispositions(rules, WIDE)) == 100


def test_verdict_map_key_with_two_variable_parts() -> None:
    """A jump in the map returns to the rule after the lookup."""
    to = Collection(
        "map",
        (Element((1, (0, 4)), DROP), Element((2, 3), REJECT), Element((3, 3), Verdict("jump", "one"))),
    )
    rules = rule_set(
        base("forward", (VmapLookup("map", (SOURCE, PORT)),), (DROP,)),
        chains=[chain("one", (REJECT,))],
        collections=[to],
    )
    found = dispositions(rules, WIDE)
    assert {found[1, port] for port in range(10)} == {Disposition.DROPPED}
    assert [found[source, 3] for source in range(5)] == [
        *[Disposition.DROPPED] * 2,
        *[Disposition.REJECTED] * 2,
        Disposition.DROPPED,
    ]


def test_key_with_constant_and_known_parts() -> None:
    rules = drop_if_in_set((7, Field.DESTINATION, Field.PROTOCOL, PORT), Element((7, 30, 6, (80, 89))))
    assert outcome(rules, from_outside()).disposition is Disposition.DROPPED
    assert outcome(rules, from_outside(port=90)).disposition is Disposition.DELIVERED
    assert outcome(rules, from_outside(protocol=17)).disposition is Disposition.DELIVERED


@pytest.mark.parametrize("inverted", [False, True])
def test_packet_without_ports_is_in_no_set_of_ports(*, inverted: bool) -> None:
    rules = drop_if_in_set((PORT,), Element(((0, 65535),)), inverted=inverted)
    fate = outcome(rules, from_outside(protocol=ICMP)).disposition
    assert fate is (Disposition.DROPPED if inverted else Disposition.DELIVERED)


@pytest.mark.parametrize(
    ("key", "elements", "expected"),
    [
        ((RandomNumber(4),), [0, 1, 2, 3], [Fraction(1, 4)] * 4),
        ((RandomNumber(4, 10),), [10, 11, 12, 13], [Fraction(1, 4)] * 4),
        ((RandomNumber(3),), [(0, 1), 2], [Fraction(2, 3), Fraction(1, 3)]),
        ((RandomNumber(1),), [0], [Fraction(1)]),
    ],
)
def test_random_number_in_key(
    key: tuple[KeyPart, ...], elements: Iterable[int | tuple[int, int]], expected: list[Fraction]
) -> None:
    held = Collection("map", tuple(Element((part,), (POD + at, 8080)) for at, part in enumerate(elements)))
    rules = rule_set(base("prerouting", (DnatMapLookup("map", key),), kind="nat"), collections=[held])
    wanted = {Outcome(Disposition.DELIVERED, POD + at, 8080): share for at, share in enumerate(expected)}
    assert outcomes(rules, from_outside()) == wanted


def test_random_number_without_element_continues_with_next_rule() -> None:
    held = Collection("map", (Element((0,), (POD, 8080)),))
    rules = rule_set(
        base("prerouting", (DnatMapLookup("map", (RandomNumber(4),)),), (DROP,), kind="nat"), collections=[held]
    )
    assert outcomes(rules, from_outside()) == {
        Outcome(Disposition.DELIVERED, POD, 8080): Fraction(1, 4),
        Outcome(Disposition.DROPPED): Fraction(3, 4),
    }


def test_random_number_and_variable_part_in_key() -> None:
    held = Collection("map", (Element(((0, 4), 0), DROP), Element(((3, 9), 1), REJECT)))
    rules = rule_set(base("forward", (VmapLookup("map", (PORT, RandomNumber(2))),)), collections=[held])
    found = {
        port: dict(outcome_shares(piece.left))
        for piece in partition(paths(rules, WIDE), ())
        for port in range(10)
        if contains(piece.fields.ports, port)
    }
    half = Fraction(1, 2)
    dropped, rejected, passed = (
        Outcome(Disposition.DROPPED),
        Outcome(Disposition.REJECTED),
        Outcome(Disposition.DELIVERED),
    )
    assert found[0] == {dropped: half, passed: half}
    assert found[3] == {dropped: half, rejected: half}
    assert found[9] == {rejected: half, passed: half}


def test_affinity_entry_is_found_by_the_next_packet() -> None:
    """Entries that one walk writes are input of the next; the set distinguishes clients of different endpoints."""
    kept = Collection("kept", is_dynamic=True, seconds=30)
    key: tuple[KeyPart, ...] = (SOURCE, 1)
    rules = rule_set(
        base(
            "forward",
            (InSet("kept", key), REJECT),
            (InSet("kept", (SOURCE, 2)), DROP),
            (AddToSet("kept", key),),
        ),
        collections=[kept],
    )
    (path,) = paths(rules, from_outside())
    assert path.outcome == Outcome(Disposition.DELIVERED, seconds=30)
    assert path.written_entries == {("kept", (1,))}
    assert path.read_entries == {("kept", (1,)), ("kept", (2,))}
    assert outcome(rules, from_outside(), path.written_entries).disposition is Disposition.REJECTED
    assert outcome(rules, from_outside(), frozenset({("kept", (2,))})).disposition is Disposition.DROPPED


@pytest.mark.parametrize("known", [False, True])
def test_inverted_lookup_of_affinity_entries(*, known: bool) -> None:
    rules = rule_set(
        base("forward", (InSet("kept", (SOURCE,), inverted=True), DROP)),
        collections=[Collection("kept", is_dynamic=True)],
    )
    memory = frozenset({("kept", ())}) if known else frozenset[tuple[str, tuple[int, ...]]]()
    assert outcome(rules, from_outside(), memory).disposition is (
        Disposition.DELIVERED if known else Disposition.DROPPED
    )


def test_class_of_one_packet_is_not_split() -> None:
    rules = drop_if_in_set((SOURCE, PORT), Element((CLIENT, 80)), Element((CLIENT, 81)))
    assert len(paths(rules, from_outside())) == 1
