"""Keys are looked up for all packets of a class at once, and the class is split just where they find other things."""

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


def looked_up(key: tuple[KeyPart, ...], *elements: Element, inverted: bool = False) -> RuleSet:
    """Drop what is in a set."""
    rule = (InSet("set", key, inverted), DROP)
    return rule_set(base("forward", rule), collections=[Collection("set", elements)])


def fates(rules: RuleSet, packets: PacketClass) -> dict[tuple[int, int], Disposition]:
    """Return what becomes of packets from each source to each port, of ten of both; shares of a point are one."""
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
def test_a_set_with_two_parts_that_are_open(keys: list[tuple[int | tuple[int, int], ...]], *, inverted: bool) -> None:
    rules = looked_up((SOURCE, PORT), *(Element(key) for key in keys), inverted=inverted)
    for point, fate in fates(rules, WIDE).items():
        is_in = any(all(map(covers, key, point)) for key in keys)
        assert fate is (Disposition.DROPPED if is_in is not inverted else Disposition.DELIVERED), point
    assert len(fates(rules, WIDE)) == 100


def test_verdicts_of_a_map_with_two_parts_that_are_open() -> None:
    """And a jump from it leads back behind the rule."""
    to = Collection(
        "map",
        (Element((1, (0, 4)), DROP), Element((2, 3), REJECT), Element((3, 3), Verdict("jump", "one"))),
    )
    rules = rule_set(
        base("forward", (VmapLookup("map", (SOURCE, PORT)),), (DROP,)),
        chains=[chain("one", (REJECT,))],
        collections=[to],
    )
    found = fates(rules, WIDE)
    assert {found[1, port] for port in range(10)} == {Disposition.DROPPED}
    assert [found[source, 3] for source in range(5)] == [
        *[Disposition.DROPPED] * 2,
        *[Disposition.REJECTED] * 2,
        Disposition.DROPPED,
    ]


def test_a_key_with_a_constant_and_what_is_known() -> None:
    rules = looked_up((7, Field.DESTINATION, Field.PROTOCOL, PORT), Element((7, 30, 6, (80, 89))))
    assert outcome(rules, from_outside()).disposition is Disposition.DROPPED
    assert outcome(rules, from_outside(port=90)).disposition is Disposition.DELIVERED
    assert outcome(rules, from_outside(protocol=17)).disposition is Disposition.DELIVERED


@pytest.mark.parametrize("inverted", [False, True])
def test_a_packet_without_ports_is_in_no_set_of_them(*, inverted: bool) -> None:
    rules = looked_up((PORT,), Element(((0, 65535),)), inverted=inverted)
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
def test_numbers_that_are_drawn(
    key: tuple[KeyPart, ...], elements: Iterable[int | tuple[int, int]], expected: list[Fraction]
) -> None:
    held = Collection("map", tuple(Element((part,), (POD + at, 8080)) for at, part in enumerate(elements)))
    rules = rule_set(base("prerouting", (DnatMapLookup("map", key),), kind="nat"), collections=[held])
    wanted = {Outcome(Disposition.DELIVERED, POD + at, 8080): share for at, share in enumerate(expected)}
    assert outcomes(rules, from_outside()) == wanted


def test_a_draw_that_finds_nothing_goes_on_with_the_next_rule() -> None:
    held = Collection("map", (Element((0,), (POD, 8080)),))
    rules = rule_set(
        base("prerouting", (DnatMapLookup("map", (RandomNumber(4),)),), (DROP,), kind="nat"), collections=[held]
    )
    assert outcomes(rules, from_outside()) == {
        Outcome(Disposition.DELIVERED, POD, 8080): Fraction(1, 4),
        Outcome(Disposition.DROPPED): Fraction(3, 4),
    }


def test_a_draw_and_a_part_that_is_open() -> None:
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


def test_who_is_remembered_is_found_again() -> None:
    """The memory of one walk is what is known in the next; a set holds clients of other endpoints apart."""
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
def test_memory_is_asked_for_the_other_way_round(*, known: bool) -> None:
    rules = rule_set(
        base("forward", (InSet("kept", (SOURCE,), inverted=True), DROP)),
        collections=[Collection("kept", is_dynamic=True)],
    )
    memory = frozenset({("kept", ())}) if known else frozenset[tuple[str, tuple[int, ...]]]()
    assert outcome(rules, from_outside(), memory).disposition is (
        Disposition.DELIVERED if known else Disposition.DROPPED
    )


def test_where_a_class_is_one_point_it_stays_whole() -> None:
    rules = looked_up((SOURCE, PORT), Element((CLIENT, 80)), Element((CLIENT, 81)))
    assert len(paths(rules, from_outside())) == 1
