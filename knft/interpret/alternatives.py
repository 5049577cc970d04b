"""What a rule asks, as alternatives: a packet passes by exactly one of the ways, or by none.

The steps of a rule must all be passed. An option that asks for one thing or another (a port at either end, a state or
a translation) makes two rules of one; the second asks that the first did not apply, so that nothing happens twice.
"""

from collections.abc import Iterable
from itertools import product

from knft.interpret.rules import Never, Step

Alternatives = tuple[tuple[Step, ...], ...]

ALWAYS: Alternatives = ((),)
NEVER: Alternatives = ((Never(),),)


def any_of(tests: Iterable[tuple[Step, Step]]) -> Alternatives:
    """Return what is passed by any of some tests; each comes with its opposite."""
    ways = []
    failed: tuple[Step, ...] = ()
    for test, opposite in tests:
        ways.append((*failed, test))
        failed = (*failed, opposite)
    return tuple(ways)


def all_of(asked: Iterable[Alternatives]) -> Alternatives:
    """Return what asks all of it."""
    found: Alternatives = ALWAYS
    for ways in asked:
        if len(ways) == 1 and len(found) == 1:  # nearly always
            found = ((*found[0], *ways[0]),)
        else:
            found = tuple([(*before, *steps) for before, steps in product(found, ways)])
    return found
