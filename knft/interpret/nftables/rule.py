"""Converts one rule of the listing to rules of ``knft.interpret.rules``: one for each alternative of its matches."""

from collections.abc import Iterable
from itertools import product
from typing import Any, get_args

from msgspec import Struct

from knft.interpret.alternatives import Alternative
from knft.interpret.nftables.listing import ListedRule
from knft.interpret.nftables.lookups import MAX_ALTERNATIVES
from knft.interpret.nftables.scope import NamedObjects, Scope
from knft.interpret.nftables.statements import Effect, read_statement
from knft.interpret.nftables.text import rule_text, statement_text
from knft.interpret.rules import (
    AddressType,
    DnatMapLookup,
    HashedFields,
    HasState,
    InSet,
    Interface,
    LookUpPriority,
    Marked,
    Never,
    Probability,
    RandomNumber,
    Rule,
    SetPriority,
    State,
    Step,
    Translated,
    Unknown,
    Verdict,
    VmapLookup,
    Within,
)

_TESTS = (Within, Marked, Interface, HasState, Translated, AddressType, InSet, Probability, LookUpPriority, SetPriority)
_STATES: frozenset[State] = frozenset(get_args(State))
_TERMINAL_VERDICTS = frozenset({"accept", "drop", "reject", "return", "goto"})


class _StatementSteps(Struct, frozen=True):
    """One alternative of one statement."""

    steps: Alternative
    is_action: bool


class RuleReader:
    """Reads rules; equal sequences of steps are one object, as large rule sets repeat a few."""

    def __init__(self, objects: NamedObjects) -> None:
        """Read rules that refer to chains, sets and maps in ``objects``."""
        self._objects = objects
        self._interned: dict[Alternative, Alternative] = {}

    def read(self, listed: ListedRule) -> tuple[Rule, ...]:
        """Return the rules for one listed rule; a rule without effect on packets has no steps."""
        scope = Scope(self._objects, listed)
        effects = _limit_alternatives([read_statement(it, scope) for it in listed.expr], listed.expr)
        text = rule_text(listed.expr, listed.comment, listed.handle)
        if not any(effect.is_action for effect in effects):
            return (Rule((), text, comment=listed.comment),)
        combinations = product(
            *([_StatementSteps(steps, effect.is_action) for steps in effect.alternatives] for effect in effects)
        )
        # Alternatives that no packet passes, or that do nothing, are left out if there is another.
        found = list(dict.fromkeys(map(_join, combinations)))
        kept = [steps for steps in found if steps not in _WITHOUT_EFFECT] or found[:1]
        return tuple(Rule(self._interned.setdefault(steps, steps), text, comment=listed.comment) for steps in kept)


_NOTHING_PASSES: Alternative = (Never(),)
_WITHOUT_EFFECT: tuple[Alternative, ...] = ((), _NOTHING_PASSES)


def _limit_alternatives(effects: list[Effect], statements: list[Any]) -> list[Effect]:
    """Return the effects of statements, with ``Unknown`` for those whose alternatives cannot become rules of their own.

    The rules are tried one after the other. That equals the listed rule only if the statements before the alternatives
    neither act nor depend on a random number. The number of rules is limited, too.
    """
    limited: list[Effect] = []
    count, is_repeatable = 1, True
    for effect, statement in zip(effects, statements, strict=True):
        own_count = len(effect.alternatives)
        count *= max(own_count, 1)
        if own_count > 1 and (not is_repeatable or count > MAX_ALTERNATIVES):
            limited.append(Effect(((Unknown(statement_text(statement)),),), effect.is_action))
            count //= own_count
        else:
            limited.append(effect)
        is_repeatable = (
            is_repeatable
            and not effect.is_action
            and not any(_is_random(step) for steps in effect.alternatives for step in steps)
        )
    return limited


def _is_random(step: Step) -> bool:
    match step:
        case Probability():
            return True
        case InSet(key=key) | LookUpPriority(key=key) | VmapLookup(key=key) | DnatMapLookup(key=key):
            return any(isinstance(part, RandomNumber | HashedFields) for part in key)
    return False


def _join(statements: tuple[_StatementSteps, ...]) -> Alternative:
    """Return the steps of statements up to the one that ends the rule, without tests that no action follows."""
    joined: list[Step] = []
    tests: list[Step] = []
    for statement in statements:
        if not statement.is_action:
            tests += (step for step in statement.steps if step not in tests)
            continue
        joined += _known_tests_first(tests, statement.steps)
        tests = []
        if Never() in joined:
            return tuple(joined[: joined.index(Never())]) or _NOTHING_PASSES
        if joined and isinstance(joined[-1], Verdict) and joined[-1].kind in _TERMINAL_VERDICTS:
            break
    while joined and isinstance(joined[-1], _TESTS):
        joined.pop()
    return tuple(joined)


def _possible_states(tests: Iterable[Step]) -> frozenset[State]:
    """Return the conntrack states of packets that pass the tests; none if the tests contradict each other."""
    possible = _STATES
    for test in tests:
        if isinstance(test, HasState):
            possible = possible - test.states if test.inverted else possible & test.states
    return possible


def _known_tests_first(tests: list[Step], steps: Alternative) -> list[Step]:
    """Return the tests, then ``steps``; ``Unknown`` tests come last, as a packet may fail a known test anyway."""
    known = [step for step in tests if not isinstance(step, Unknown)]
    if Never() in known or Never() in steps or not _possible_states(known):
        return [Never()]
    unknown = [step for step in tests if isinstance(step, Unknown)]
    return [*known, *unknown, *(step for step in steps if step not in known)]
