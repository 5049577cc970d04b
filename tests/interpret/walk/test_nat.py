"""NAT translates each end of a connection once, for its first packet, and applies this to all later packets."""

from fractions import Fraction

import pytest
from msgspec.structs import replace

from knft.interpret.outcomes import Disposition, Outcome, PacketClass
from knft.interpret.ranges import ranges, single
from knft.interpret.rules import (
    Collection,
    DnatMapLookup,
    Element,
    Field,
    HasState,
    Hook,
    SetMark,
    Step,
    Translate,
    Translated,
    Within,
)
from tests.interpret.walk.small_rule_sets import (
    ACCEPT,
    CLIENT,
    DROP,
    FRONTEND,
    NODE,
    OTHER_POD,
    POD,
    RETURN,
    base,
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
TO_POD = Translate("dnat", single(POD), single(8080))
TO_OTHER = Translate("dnat", single(OTHER_POD), single(8080))
MASQUERADE = Translate("snat", to_interface_address=True)
NEW, OLD = HasState(frozenset({"new"})), HasState(frozenset({"established"}))


def test_translation_ends_nat_at_the_hook() -> None:
    rules = rule_set(
        base("prerouting", (ACCEPT,), kind="nat", name="silent", priority=-102),
        base("prerouting", (TO_POD,), kind="nat", name="first", priority=-101),
        base("prerouting", (TO_OTHER,), kind="nat", name="second", priority=-100),
    )
    assert outcome(rules, from_outside()) == Outcome(Disposition.DELIVERED, POD, 8080)
    assert hit_rules(rules, from_outside()) == ["silent: 0", "first: 0"]


@pytest.mark.parametrize("target", [FRONTEND, NODE])
def test_source_and_destination_are_translated_separately(target: int) -> None:
    rules = rule_set(
        base("prerouting", (TO_POD,), kind="nat"),
        base("postrouting", (MASQUERADE,), kind="nat", name="first"),
        base("postrouting", (Translate("snat", single(99)),), kind="nat", name="second"),
    )
    assert outcome(rules, from_outside(target)) == Outcome(Disposition.DELIVERED, POD, 8080, "masqueraded")


def test_looped_packet_skips_nat_chains() -> None:
    """Output and postrouting have decided about both ends, even if they translated nothing (nf_nat_core.c)."""
    rules = rule_set(
        base("output", (RETURN,), kind="nat"),
        base("prerouting", (DROP,), kind="nat"),
        base("input", (DROP,), kind="nat"),
    )
    assert outcome(rules, from_node(NODE)) == Outcome(Disposition.DELIVERED)
    assert outcome(rules, from_outside(NODE)).disposition is Disposition.DROPPED


def test_snat_at_input_applies_to_local_packets_only() -> None:
    rules = rule_set(base("input", (MASQUERADE,), kind="nat"))
    assert outcome(rules, from_outside(NODE)).source == "masqueraded"
    assert outcome(rules, from_outside()).source == "kept"


@pytest.mark.parametrize("packets", [from_outside(), established(from_outside())], ids=["new", "established"])
def test_later_packets_are_translated_like_the_first(packets: PacketClass) -> None:
    """Only the first packet traverses nat chains, so their tests see the state "new"."""
    rules = rule_set(base("prerouting", (OLD, DROP), (NEW, TO_POD), kind="nat"))
    assert outcome(rules, packets) == Outcome(Disposition.DELIVERED, POD, 8080)


def test_filter_chains_see_the_real_state() -> None:
    rules = rule_set(base("forward", (NEW, DROP)))
    assert outcome(rules, from_outside()).disposition is Disposition.DROPPED
    assert outcome(rules, established(from_outside())).disposition is Disposition.DELIVERED


def test_invalid_packets_are_not_translated() -> None:
    invalid = from_outside(states=frozenset({"invalid"}))
    assert outcome(rule_set(base("prerouting", (TO_POD,), kind="nat")), invalid) == Outcome(Disposition.DELIVERED)


def test_class_is_split_into_tracked_and_invalid_packets() -> None:
    rules = rule_set(base("prerouting", (TO_POD,), kind="nat"))
    mixed = from_outside(states=frozenset({"new", "established", "invalid"}))
    found = {path.fields.states: path.outcome for path in paths(rules, mixed)}
    assert found == {
        frozenset({"new", "established"}): Outcome(Disposition.DELIVERED, POD, 8080),
        frozenset({"invalid"}): Outcome(Disposition.DELIVERED),
    }


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (Translate("dnat", single(POD)), {Outcome(Disposition.DELIVERED, POD): Fraction(1)}),
        (Translate("dnat", ports=single(8080)), {Outcome(Disposition.DELIVERED, FRONTEND, 8080): Fraction(1)}),
        (
            Translate("dnat", ranges([(POD, OTHER_POD)]), single(8080)),
            {Outcome(Disposition.DELIVERED, pod, 8080): Fraction(1, 2) for pod in (POD, OTHER_POD)},
        ),
        (
            Translate("dnat", single(POD), ranges([(8080, 8083)])),
            {Outcome(Disposition.DELIVERED, POD, port): Fraction(1, 4) for port in range(8080, 8084)},
        ),
        (Translate("dnat", ranges([(0, 1 << 20)])), {Outcome(Disposition.UNDECIDED): Fraction(1)}),
    ],
)
def test_dnat_chooses_each_destination_with_equal_probability(
    action: Translate, found: dict[Outcome, Fraction]
) -> None:
    assert outcomes(rule_set(base("prerouting", (action,), kind="nat")), from_outside()) == found


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (MASQUERADE, {"masqueraded": Fraction(1)}),
        (Translate("snat", single(99)), {99: Fraction(1)}),
        (Translate("snat", ranges([(98, 99)])), {98: Fraction(1, 2), 99: Fraction(1, 2)}),
        (Translate("snat", ports=ranges([(1024, 2047)])), {"kept": Fraction(1)}),
    ],
)
def test_snat_chooses_each_source_with_equal_probability(action: Translate, found: dict[object, Fraction]) -> None:
    rules = rule_set(
        base("postrouting", (action,), kind="nat"),
        base("postrouting", (Translated("snat", inverted=True), DROP), priority=300),
    )
    assert {outcome.source: share for outcome, share in outcomes(rules, from_outside()).items()} == found


def test_rules_match_translated_and_original_destination() -> None:
    tests: list[Step] = [
        Translated("dnat"),
        Within(Field.DESTINATION, single(POD)),
        Within(Field.DESTINATION_PORT, single(8080)),
        Within(Field.ORIGINAL_DESTINATION, single(FRONTEND)),
        Within(Field.ORIGINAL_PORT, single(80)),
        Within(Field.SOURCE, single(CLIENT)),
    ]
    nat = base("prerouting", (TO_POD,), kind="nat")
    assert outcome(rule_set(nat, base("forward", (*tests, DROP))), from_outside()).disposition is Disposition.DROPPED
    for test in tests:
        inverted = replace(test, inverted=True)
        assert (
            outcome(rule_set(nat, base("forward", (inverted, DROP))), from_outside()).disposition
            is Disposition.DELIVERED
        )
    before = base("prerouting", (Translated("dnat"), DROP), priority=-150)
    assert outcome(rule_set(nat, before), from_outside()).disposition is Disposition.DELIVERED


def test_rules_after_snat_match_the_new_source() -> None:
    snat = base("postrouting", (Translate("snat", single(99)),), kind="nat")
    for field, seen in ((Field.SOURCE, 99), (Field.ORIGINAL_SOURCE, CLIENT)):
        drop = base("postrouting", (Within(field, single(seen)), DROP), priority=300)
        assert outcome(rule_set(snat, drop), from_outside()).disposition is Disposition.DROPPED


def test_dnat_map_translates_its_keys_only() -> None:
    by = DnatMapLookup("map", (Field.DESTINATION_PORT,))
    to = Collection("map", (Element((80,), (POD, 8080)), Element((81,), (OTHER_POD,))))
    rules = rule_set(base("prerouting", (by,), (NOTE,), (DROP,), kind="nat"), collections=[to])
    assert outcome(rules, from_outside(port=80)) == Outcome(Disposition.DELIVERED, POD, 8080)
    assert outcome(rules, from_outside(port=81)) == Outcome(Disposition.DELIVERED, OTHER_POD)
    assert outcome(rules, from_outside(port=82)).disposition is Disposition.DROPPED


@pytest.mark.parametrize("packets", [from_outside(), established(from_outside()), from_node()])
def test_packets_before_conntrack_have_no_state(packets: PacketClass) -> None:
    """tests/packets/test_rule_hits.py verifies this against a kernel."""
    hook: Hook = "output" if packets.origin == "node" else "prerouting"
    for test, passes in (
        (HasState(frozenset({"invalid"})), True),
        (HasState(packets.fields.states), False),
        (HasState(packets.fields.states, inverted=True), True),
        (Translated("dnat", inverted=True), False),
        (Within(Field.ORIGINAL_DESTINATION, single(packets.destination)), False),
        (Within(Field.DESTINATION, single(packets.destination)), True),
    ):
        early = rule_set(base(hook, (test, DROP), priority=-201))
        assert (outcome(early, packets).disposition is Disposition.DROPPED) is passes


def test_looped_packet_keeps_its_conntrack_state() -> None:
    rules = rule_set(base("prerouting", (NEW, DROP), priority=-300))
    assert outcome(rules, from_node(NODE)).disposition is Disposition.DROPPED
    assert outcome(rules, from_outside(NODE)).disposition is Disposition.DELIVERED


@pytest.mark.parametrize(
    ("action", "what", "is_translated"),
    [
        (Translate("dnat", single(FRONTEND)), "dnat", False),
        (Translate("dnat", single(FRONTEND), single(80)), "dnat", False),
        (Translate("dnat", single(FRONTEND), single(81)), "dnat", True),
        (Translate("dnat", single(POD)), "dnat", True),
        (Translate("snat", single(CLIENT)), "snat", False),
        (Translate("snat", single(99)), "snat", True),
        (MASQUERADE, "snat", True),
    ],
)
def test_translation_to_the_same_address_is_no_translation(
    action: Translate, what: str, *, is_translated: bool
) -> None:
    """The kernel does not set the NAT status bits, although NAT is done (nf_nat_core.c)."""
    hook: Hook = "prerouting" if action.kind == "dnat" else "postrouting"
    test = Translated(what)  # type: ignore[arg-type] # one of the words
    rules = rule_set(
        base(hook, (action,), kind="nat"),
        base(hook, (DROP,), kind="nat", name="second"),
        base("postrouting", (test, NOTE), priority=300, name="after"),
    )
    assert ("after: 0" in hit_rules(rules, from_outside())) is is_translated
