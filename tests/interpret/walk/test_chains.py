"""Jumps, gotos, returns, verdicts and policies lead where the kernel leads packets."""

import pytest

from knft.interpret.outcomes import Disposition
from knft.interpret.ranges import single
from knft.interpret.rules import Field, SetMark, Step, Verdict, Within
from tests.interpret.walk.small_rule_sets import (
    ACCEPT,
    CLIENT,
    DROP,
    FRONTEND,
    REJECT,
    RETURN,
    base,
    chain,
    from_outside,
    hit_rules,
    outcome,
    rule_set,
)

NOTE = SetMark(0xFFFFFFFF, 0)
CONTINUE = Verdict("continue")


def jump(name: str) -> Verdict:
    return Verdict("jump", name)


def goto(name: str) -> Verdict:
    return Verdict("goto", name)


def test_the_end_of_a_chain_leads_back_behind_the_jump() -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (NOTE,), name="base"),
        chains=[chain("one", (jump("two"),), (NOTE,)), chain("two", (NOTE,))],
    )
    assert hit_rules(rules, from_outside()) == ["base: 0", "one: 0", "two: 0", "one: 1", "base: 1"]


@pytest.mark.parametrize("way_back", [(), ((RETURN,),)], ids=["end", "return"])
def test_from_a_goto_the_way_leads_back_behind_the_jump_before(way_back: tuple[tuple[Step, ...], ...]) -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (NOTE,), name="base"),
        chains=[chain("one", (goto("two"),), (NOTE,)), chain("two", (NOTE,), *way_back, (NOTE,))],
    )
    met = ["two: 0", "two: 1"]
    assert hit_rules(rules, from_outside()) == ["base: 0", "one: 0", *met, "base: 1"]


def test_a_return_skips_the_rest_of_its_chain() -> None:
    rules = rule_set(base("forward", (jump("one"),), (NOTE,), name="base"), chains=[chain("one", (RETURN,), (DROP,))])
    assert hit_rules(rules, from_outside()) == ["base: 0", "one: 0", "base: 1"]


@pytest.mark.parametrize(
    ("rules", "chains"),
    [
        ([(RETURN,), (ACCEPT,)], []),
        ([(goto("one"),), (ACCEPT,)], [chain("one")]),
        ([(goto("one"),), (ACCEPT,)], [chain("one", (RETURN,), (ACCEPT,))]),
        ([(jump("one"),)], [chain("one", (RETURN,), (ACCEPT,))]),
        ([(CONTINUE,)], []),
        ([], []),
    ],
)
def test_the_end_of_a_base_chain_meets_its_policy(rules: list[tuple[Step, ...]], chains: list[object]) -> None:
    for policy, fate in (("drop", Disposition.DROPPED), ("accept", Disposition.DELIVERED)):
        held = rule_set(base("forward", *rules, policy=policy), chains=chains)  # type: ignore[arg-type] # chains
        assert outcome(held, from_outside()).disposition is fate


@pytest.mark.parametrize(("verdict", "fate"), [(DROP, Disposition.DROPPED), (REJECT, Disposition.REJECTED)])
def test_a_refusal_is_the_end_everywhere(verdict: Verdict, fate: Disposition) -> None:
    rules = rule_set(
        base("forward", (jump("one"),), priority=-1, name="base"),
        base("forward", (NOTE,)),
        chains=[chain("one", (verdict,))],
    )
    assert outcome(rules, from_outside()).disposition is fate


def test_an_acceptance_is_the_end_of_its_base_chain_alone() -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (DROP,), priority=-1, name="early", policy="drop"),
        base("forward", (DROP,), name="late"),
        chains=[chain("one", (ACCEPT,))],
    )
    assert hit_rules(rules, from_outside()) == ["early: 0", "one: 0", "late: 0"]


def test_a_rule_whose_test_fails_does_nothing_and_is_not_met() -> None:
    rules = rule_set(base("forward", (Within(Field.SOURCE, single(CLIENT + 1)), DROP), (NOTE,), name="base"))
    assert hit_rules(rules, from_outside()) == ["base: 1"]


def test_long_chains_are_walked_in_order_and_only_where_they_can_concern_a_packet() -> None:
    """They are indexed by the one destination that a rule names."""
    rules = [(Within(Field.DESTINATION, single(address)), NOTE) for address in range(100)]
    rules[50] = (NOTE,)  # type: ignore[assignment] # for all
    held = rule_set(base("forward", *rules, (Within(Field.DESTINATION, single(FRONTEND)), NOTE), name="base"))
    assert hit_rules(held, from_outside()) == [f"base: {FRONTEND}", "base: 50", "base: 100"]
