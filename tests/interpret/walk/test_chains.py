"""Jumps, gotos, returns, verdicts and policies work as in the kernel."""

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


def test_end_of_chain_continues_after_the_jump() -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (NOTE,), name="base"),
        chains=[chain("one", (jump("two"),), (NOTE,)), chain("two", (NOTE,))],
    )
    assert hit_rules(rules, from_outside()) == ["base: 0", "one: 0", "two: 0", "one: 1", "base: 1"]


@pytest.mark.parametrize("last_rules", [(), ((RETURN,),)], ids=["end", "return"])
def test_chain_reached_by_goto_returns_to_the_jump_before(last_rules: tuple[tuple[Step, ...], ...]) -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (NOTE,), name="base"),
        chains=[chain("one", (goto("two"),), (NOTE,)), chain("two", (NOTE,), *last_rules, (NOTE,))],
    )
    met = ["two: 0", "two: 1"]
    assert hit_rules(rules, from_outside()) == ["base: 0", "one: 0", *met, "base: 1"]


def test_return_skips_the_rest_of_the_chain() -> None:
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
def test_policy_applies_at_the_end_of_a_base_chain(rules: list[tuple[Step, ...]], chains: list[object]) -> None:
    for policy, disposition in (("drop", Disposition.DROPPED), ("accept", Disposition.DELIVERED)):
        held = rule_set(base("forward", *rules, policy=policy), chains=chains)  # type: ignore[arg-type] # chains
        assert outcome(held, from_outside()).disposition is disposition


@pytest.mark.parametrize(("verdict", "disposition"), [(DROP, Disposition.DROPPED), (REJECT, Disposition.REJECTED)])
def test_drop_and_reject_end_the_walk_in_every_chain(verdict: Verdict, disposition: Disposition) -> None:
    rules = rule_set(
        base("forward", (jump("one"),), priority=-1, name="base"),
        base("forward", (NOTE,)),
        chains=[chain("one", (verdict,))],
    )
    assert outcome(rules, from_outside()).disposition is disposition


def test_accept_ends_only_its_base_chain() -> None:
    rules = rule_set(
        base("forward", (jump("one"),), (DROP,), priority=-1, name="early", policy="drop"),
        base("forward", (DROP,), name="late"),
        chains=[chain("one", (ACCEPT,))],
    )
    assert hit_rules(rules, from_outside()) == ["early: 0", "one: 0", "late: 0"]


def test_rule_with_failing_test_has_no_effect_and_no_hit() -> None:
    rules = rule_set(base("forward", (Within(Field.SOURCE, single(CLIENT + 1)), DROP), (NOTE,), name="base"))
    assert hit_rules(rules, from_outside()) == ["base: 1"]


def test_only_candidate_rules_of_long_chains_are_evaluated_in_order() -> None:
    """Chains are indexed by the destination that a rule matches."""
    rules = [(Within(Field.DESTINATION, single(address)), NOTE) for address in range(100)]
    rules[50] = (NOTE,)  # type: ignore[assignment] # for all
    held = rule_set(base("forward", *rules, (Within(Field.DESTINATION, single(FRONTEND)), NOTE), name="base"))
    assert hit_rules(held, from_outside()) == [f"base: {FRONTEND}", "base: 50", "base: 100"]
