"""One rule: its statements in, rules of the vocabulary out (several, where its tests have several ways to be said)."""

from collections.abc import Iterable
from itertools import product
from typing import Any, get_args

from msgspec import Struct

from knft.interpret.nftables.document import ListedRule
from knft.interpret.nftables.lookups import MOST_WAYS
from knft.interpret.nftables.matching import Way
from knft.interpret.nftables.scope import Names, Scope
from knft.interpret.nftables.statements import Effect, read_statement
from knft.interpret.nftables.text import rule_text, statement_text
from knft.interpret.rules import (
    AddressType,
    Chance,
    Choose,
    HasState,
    InSet,
    Interface,
    Marked,
    Never,
    Random,
    Rule,
    State,
    Step,
    TranslateBy,
    Translated,
    Unknown,
    Verdict,
    Within,
)

_TESTS = (Within, Marked, Interface, HasState, Translated, AddressType, InSet, Chance)
_STATES: frozenset[State] = frozenset(get_args(State))
_ENDS = frozenset({"accept", "drop", "reject", "return", "goto"})


class _Part(Struct, frozen=True):
    """One way of one statement."""

    steps: Way
    acts: bool


class RuleReader:
    """Reads rules; equal steps are shared between them, as large rule sets repeat few."""

    def __init__(self, names: Names) -> None:
        """Read rules that name what is in ``names``."""
        self._names = names
        self._shared: dict[Way, Way] = {}

    def read(self, listed: ListedRule) -> tuple[Rule, ...]:
        """Return a rule; one that decides nothing has no steps."""
        scope = Scope(self._names, listed)
        effects = _sayable([read_statement(it, scope) for it in listed.expr], listed.expr)
        text = rule_text(listed.expr, listed.comment, listed.handle)
        if not any(effect.acts for effect in effects):
            return (Rule((), text, comment=listed.comment),)
        ways = product(*([_Part(way, effect.acts) for way in effect.ways] for effect in effects))
        # Ways that nothing passes, or that do nothing, are needed by nobody, unless there is no other.
        found = list(dict.fromkeys(map(_steps, ways)))
        kept = [steps for steps in found if steps not in _IDLE] or found[:1]
        return tuple(Rule(self._shared.setdefault(steps, steps), text, comment=listed.comment) for steps in kept)


_NOTHING_PASSES: Way = (Never(),)
_IDLE: tuple[Way, ...] = ((), _NOTHING_PASSES)


def _sayable(effects: list[Effect], statements: list[Any]) -> list[Effect]:
    """Return what statements do, where several ways are as good as the one rule that they come from.

    They are tried one after the other: what stands before must neither act nor be drawn, and too many are none.
    """
    found: list[Effect] = []
    count, repeatable = 1, True
    for effect, statement in zip(effects, statements, strict=True):
        ways = len(effect.ways)
        count *= max(ways, 1)
        if ways > 1 and (not repeatable or count > MOST_WAYS):
            found.append(Effect(((Unknown(statement_text(statement)),),), effect.acts))
            count //= ways
        else:
            found.append(effect)
        repeatable = repeatable and not effect.acts and not any(_is_drawn(step) for way in effect.ways for step in way)
    return found


def _is_drawn(step: Step) -> bool:
    match step:
        case Chance():
            return True
        case InSet(key=key) | Choose(key=key) | TranslateBy(key=key):
            return any(isinstance(part, Random) for part in key)
    return False


def _steps(parts: tuple[_Part, ...]) -> Way:
    """Return the steps of one way through a rule, up to where it ends, without tests that nothing follows."""
    found: list[Step] = []
    tests: list[Step] = []
    for part in parts:
        if not part.acts:
            tests += (step for step in part.steps if step not in tests)
            continue
        found += _certain_first(tests, part.steps)
        tests = []
        if Never() in found:
            return tuple(found[: found.index(Never())]) or _NOTHING_PASSES
        if found and isinstance(found[-1], Verdict) and found[-1].kind in _ENDS:
            break
    while found and isinstance(found[-1], _TESTS):
        found.pop()
    return tuple(found)


def _possible_states(tests: Iterable[Step]) -> frozenset[State]:
    """Return the states that a packet may have that passes tests: they may exclude each other."""
    left = _STATES
    for test in tests:
        if isinstance(test, HasState):
            left = left - test.states if test.inverted else left & test.states
    return left


def _certain_first(tests: list[Step], steps: Way) -> list[Step]:
    """Return tests and what follows; what is not interpreted is last, as a packet may fail another test before."""
    known = [step for step in tests if not isinstance(step, Unknown)]
    if Never() in known or Never() in steps or not _possible_states(known):
        return [Never()]
    unknown = [step for step in tests if isinstance(step, Unknown)]
    return [*known, *unknown, *(step for step in steps if step not in known)]
