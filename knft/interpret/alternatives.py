"""Alternatives: the lists of steps that stand for one match of a rule.

A packet passes the match if it passes all steps of one alternative. Alternatives exclude each other, so a packet passes
at most one of them. A match with one alternative is the usual case. An option that tests one thing or another (the port
at either end, a state or a translation) has several, and the parser writes one rule for each. Every alternative after
the first also tests that the earlier ones failed, so that no packet is handled twice. For example, iptables'
``--ctstate INVALID,DNAT`` becomes two alternatives: (the state is invalid) and (the state is not invalid, the
destination was translated).
"""

from collections.abc import Iterable
from itertools import product

from knft.interpret.rules import Never, Step

Alternative = tuple[Step, ...]
Alternatives = tuple[Alternative, ...]

ALWAYS: Alternatives = ((),)
"""A match that every packet passes."""
NEVER: Alternatives = ((Never(),),)
"""A match that no packet passes."""


def any_of(tests: Iterable[tuple[Step, Step]]) -> Alternatives:
    """Return the match that passes if any of the tests passes; each test comes with its inverse."""
    alternatives = []
    failed: Alternative = ()
    for test, inverse in tests:
        alternatives.append((*failed, test))
        failed = (*failed, inverse)
    return tuple(alternatives)


def all_of(matches: Iterable[Alternatives]) -> Alternatives:
    """Return the match that passes if all of the matches pass."""
    combined: Alternatives = ALWAYS
    for alternatives in matches:
        if len(alternatives) == 1 and len(combined) == 1:  # almost always
            combined = ((*combined[0], *alternatives[0]),)
        else:
            combined = tuple([(*before, *steps) for before, steps in product(combined, alternatives)])
    return combined
