"""Properties of walks through random rule sets."""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from knft.interpret.compare.partition import partition
from knft.interpret.outcomes import AffinityEntry, PacketClass, PacketFields, Path, overlap, rule_hits
from knft.interpret.ranges import Ranges, contains, intersection, ranges, single
from knft.interpret.rules import (
    AddressType,
    AddToSet,
    BaseChain,
    Chain,
    Collection,
    DnatMapLookup,
    Element,
    Field,
    HasState,
    Hook,
    InSet,
    Interface,
    Marked,
    Never,
    Probability,
    RandomNumber,
    Rule,
    RuleSet,
    SetMark,
    Translate,
    Translated,
    Unknown,
    Verdict,
    ViaVirtualServer,
    VirtualServer,
    VmapLookup,
    Within,
)
from knft.interpret.walk.walker import Walker

LAST = 7
"""The highest address and port: a small range, so that values coincide. The node has 1, kube-ipvs0 has 2."""
OWN, BOUND = single(1), single(2)
HOOKS: tuple[Hook, ...] = ("prerouting", "input", "forward", "output", "postrouting")
ADDRESSES = (Field.SOURCE, Field.DESTINATION, Field.ORIGINAL_SOURCE, Field.ORIGINAL_DESTINATION)
PORTS = (Field.SOURCE_PORT, Field.DESTINATION_PORT, Field.ORIGINAL_PORT)
INTERFACES = ("eth0", "veth1", "veth2")
CHAINS = ("one", "two", "three")
"""Each chain only jumps to later ones, because the kernel rejects loops."""

number = st.integers(0, LAST)
pair = st.tuples(number, number).map(lambda ends: (min(ends), max(ends)))
some: st.SearchStrategy[Ranges] = st.lists(pair, min_size=1, max_size=2).map(ranges)
inverted = st.booleans()
field = st.sampled_from((*ADDRESSES, *PORTS))
names = st.sampled_from([("eth0",), ("veth*",), ("*",)])
states = st.frozensets(st.sampled_from(("new", "established", "invalid")), min_size=1)
key_part = st.one_of(field, field, st.builds(RandomNumber, st.integers(1, 3), st.integers(0, 1)), number)
key = st.tuples(key_part, key_part)
tests = st.one_of(
    st.builds(Within, field, some, inverted),
    st.builds(Within, st.just(Field.PROTOCOL), st.just(single(6)), inverted),
    st.builds(Marked, number, some, inverted),
    st.builds(
        Interface,
        st.sampled_from((Field.INPUT, Field.OUTPUT)),
        st.sampled_from([("eth0",), ("veth*",), ("*",)]),
        inverted,
    ),
    st.builds(HasState, states, inverted),
    st.builds(Translated, st.sampled_from(("dnat", "snat")), inverted),
    st.builds(AddressType, st.sampled_from((Field.SOURCE, Field.DESTINATION)), st.just(frozenset({"local"})), inverted),
    st.builds(InSet, st.just("set"), key, inverted),
    st.builds(InSet, st.just("kept"), key, inverted),
    st.builds(Probability, st.fractions(0, 1, max_denominator=4)),
    st.builds(ViaVirtualServer, number, st.just(6), number, inverted),
    st.just(Never()),
)
plain = st.sampled_from([Verdict(kind) for kind in ("accept", "drop", "reject", "return", "continue")])
translations = st.one_of(
    st.builds(Translate, st.just("dnat"), some, some),
    st.builds(Translate, st.just("snat"), some),
    st.just(Translate("snat", to_interface_address=True)),
    st.builds(DnatMapLookup, st.just("addresses"), key),
)


def verdicts(chains: tuple[str, ...]) -> st.SearchStrategy[Verdict]:
    """Return verdicts, including jumps to the given chains."""
    if not chains:
        return plain
    return st.one_of(plain, st.builds(Verdict, st.sampled_from(("jump", "goto")), st.sampled_from(chains)))


def rules(chains: tuple[str, ...], *, is_nat: bool = False) -> st.SearchStrategy[Any]:
    """Return the rules of a chain that can jump to the given chains."""
    effects = st.one_of(
        st.builds(SetMark, number, number),
        st.builds(AddToSet, st.just("kept"), key),
        st.just(Unknown("something")),
    )
    ends = st.one_of(
        verdicts(chains), *([st.builds(VmapLookup, st.just("ways"), key)] if len(chains) == len(CHAINS) else [])
    )
    ends = st.one_of(ends, translations) if is_nat else ends
    rule = st.tuples(st.lists(tests, max_size=3), st.lists(effects, max_size=1), st.lists(ends, max_size=1))
    return st.lists(rule, max_size=3).map(
        lambda found: tuple(
            Rule((*before, *effect, *end), str(number)) for number, (before, effect, end) in enumerate(found)
        )
    )


def collections(value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Element, ...]]:
    """Return elements whose keys do not overlap, as the kernel requires."""
    part = st.one_of(number, pair)
    elements = st.lists(st.builds(Element, st.tuples(part, part), value), max_size=3)
    return elements.map(lambda found: tuple(_without_overlaps(found)))


def _without_overlaps(elements: list[Element]) -> list[Element]:
    kept: list[Element] = []
    for element in elements:
        if not any(all(map(_overlap, element.key, other.key)) for other in kept):
            kept.append(element)
    return kept


def _overlap(one: Any, other: Any) -> bool:
    return bool(intersection(*(((part, part),) if isinstance(part, int) else (part,) for part in (one, other))))


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    """Return a rule set with a few chains at some hooks, and a few collections and servers."""
    chains = {}
    bases = []
    for hook in HOOKS:
        for kind in ("filter", "nat") if hook != "forward" else ("filter",):
            if draw(st.booleans()):
                name = f"{kind} {hook}"
                policy = draw(st.sampled_from(("accept", "drop"))) if kind == "filter" else "accept"
                bases.append(BaseChain(name, hook, kind, 0, policy))  # type: ignore[arg-type] # words
                chains[name] = Chain(name, draw(rules(CHAINS, is_nat=kind == "nat")))
    for at, name in enumerate(CHAINS):
        chains[name] = Chain(name, draw(rules(CHAINS[at + 1 :])))
    rule_set = (
        Collection("set", draw(collections(st.none()))),
        Collection("kept", is_dynamic=True, seconds=9),
        Collection("ways", draw(collections(verdicts(CHAINS)))),
        Collection("addresses", draw(collections(st.one_of(st.tuples(number), st.tuples(number, number))))),
    )
    targets = st.lists(st.tuples(number, number, st.integers(0, 2)), max_size=2, unique_by=lambda it: it[:2]).map(tuple)
    server = st.builds(
        VirtualServer, number, st.just(6), number, st.just("rr"), targets, st.one_of(st.none(), st.just(9))
    )
    return RuleSet(
        version=4,
        base_chains=tuple(bases),
        chains=chains,
        collections={found.name: found for found in rule_set},
        servers=tuple(draw(st.lists(server, max_size=2))),
        ipvs_addresses=draw(st.sampled_from((BOUND, ()))),
    )


@st.composite
def classes(draw: st.DrawFn) -> PacketClass:
    """Return a packet class."""
    origin = draw(st.sampled_from(("network", "node")))
    destination = draw(number)
    inputs = frozenset(INTERFACES) if origin == "network" else frozenset({""})
    box = PacketFields(draw(some), draw(some), draw(some), inputs, frozenset(INTERFACES), draw(states))  # type: ignore[arg-type] # words
    return PacketClass(
        origin,  # type: ignore[arg-type] # one of the words
        draw(st.sampled_from((6, 1))),
        destination,
        contains(OWN, destination),
        box,
        is_source_selected=origin == "node" and draw(st.booleans()),
    )


@settings(max_examples=70, deadline=None)
@given(rule_sets(), classes())
def test_probabilities_of_each_packet_sum_to_one(rule_set: RuleSet, packets: PacketClass) -> None:
    """The paths together cover the whole packet class, without overlap."""
    walker = Walker(rule_set, OWN)
    first = walker.paths(packets)
    known = frozenset(memory for path in first for memory in path.written_entries)
    for paths in (first, walker.paths(packets, known)):
        found = partition(paths, ())
        assert all(sum(path.share for path in piece.left) == 1 for piece in found)
        assert all(0 < path.share <= 1 for path in paths)
        packet_count = sum(path.share * _packet_count(path.fields) for path in paths)
        assert packet_count == _packet_count(packets.fields)


@settings(max_examples=70, deadline=None)
@given(rule_sets(), classes(), st.data())
def test_each_packet_has_the_outcomes_of_its_class(
    rule_set: RuleSet, packets: PacketClass, data: st.DataObject
) -> None:
    """This holds if the class is split, if its paths come from the cache, and if neither is the case."""
    paths = Walker(rule_set, OWN).paths(packets)
    points = [single(data.draw(st.sampled_from(_numbers(where)))) for where in packets.fields[:3]]
    names = [frozenset({data.draw(st.sampled_from(sorted(kinds)))}) for kinds in packets.fields[3:]]
    point = PacketFields(*points, *names)  # type: ignore[arg-type] # in order
    alone = Walker(rule_set, OWN)
    alone._address_groups.group = lambda _: None  # type: ignore[method-assign, assignment] # nothing is known
    there = [path for path in paths if overlap(path.fields, point) is not None]
    assert _shares(there) == _shares(alone.paths(replace(packets, fields=point)))


def _shares(paths: list[Path]) -> dict[object, Fraction]:
    """Return the shares of one packet by outcome, rules hit, and affinity entries."""
    found: dict[object, Fraction] = {}
    for path in paths:
        met = tuple((hit.chain, hit.rule.text) for hit in rule_hits(path.trail))
        key = path.outcome, met, *(map(_collections, (path.read_entries, path.written_entries)))
        found[key] = found.get(key, Fraction()) + path.share
    return found


def _collections(memories: frozenset[AffinityEntry]) -> frozenset[str]:
    """Return the collections of affinity entries, without key parts that can vary within a class."""
    return frozenset(collection for collection, _ in memories)


def _numbers(values: Ranges) -> list[int]:
    return [number for first, last in values for number in range(first, last + 1)]


def _packet_count(fields: PacketFields) -> Fraction:
    """Return the number of packets in a class."""
    found = Fraction(len(fields.inputs) * len(fields.outputs) * len(fields.states))
    for where in (fields.ports, fields.sources, fields.source_ports):
        found *= sum(last - first + 1 for first, last in where)
    return found
