"""What a rule asks, as alternatives: a packet passes by exactly one of the ways, or by none.

The steps of a rule must all be passed. An option that asks for one thing or another (a port at either end, a state or
a translation) makes two rules of one; the second asks that the first did not apply, so that nothing happens twice.
"""

from collections.abc import Iterable
from itertools import product

from knft.interpret.rules import Never, Step

Ways = tuple[tuple[Step, ...], ...]

ALWAYS: Ways = ((),)
NEVER: Ways = ((Never(),),)


def either(tests: Iterable[tuple[Step, Step]]) -> Ways:
    """Return what is passed by any of some tests; each comes with its opposite."""
    ways = []
    failed: tuple[Step, ...] = ()
    for test, opposite in tests:
        ways.append((*failed, test))
        failed = (*failed, opposite)
    return tuple(ways)


def together(asked: Iterable[Ways]) -> Ways:
    """Return what asks all of it."""
    found: Ways = ALWAYS
    for ways in asked:
        if len(ways) == 1 and len(found) == 1:  # nearly always
            found = ((*found[0], *ways[0]),)
        else:
            found = tuple([(*before, *steps) for before, steps in product(found, ways)])
    return found
