"""What an operator is: one way in which a capture goes wrong, or is written otherwise without going wrong."""

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from msgspec import Struct

Edited = TypeVar("Edited")


class Touched(Struct, frozen=True):
    """What a mutation has done.

    ``services`` are the Service ports of which one has to be named, none where it is all of them. ``equivalent`` says
    why no packet can fare otherwise; it knows nothing of the comparison. ``line`` is where a rule stands that nobody
    can interpret: it has to be found, and named.
    """

    services: tuple[str, ...] = ()
    equivalent: str = ""
    line: int = 0


class Operator(Struct, Generic[Edited], frozen=True):
    """A way to change a capture; ``change`` returns None where this one has no place for it."""

    name: str
    what: str
    change: Callable[[Edited, Random], Touched | None]


class Rewrite(Struct, Generic[Edited], frozen=True):
    """A way to write the same otherwise; ``change`` tells whether it found something to write otherwise."""

    name: str
    what: str
    change: Callable[[Edited, Random], bool]
