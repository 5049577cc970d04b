"""Mutation operators, which break a capture, and rewrites, which keep its meaning."""

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from msgspec import Struct

Edited = TypeVar("Edited")


class Expectation(Struct, frozen=True):
    """What the comparison has to report for a mutation.

    It has to name one of ``service_ports``, which is empty if the mutation affects all Service ports.
    ``equivalence_reason`` says why no packet has another outcome, "" if some packet has one; it does not refer to the
    comparison. ``line`` is the line of an uninterpreted rule that the report has to name, -1 for a rule in an nft
    listing.
    """

    service_ports: tuple[str, ...] = ()
    equivalence_reason: str = ""
    line: int = 0


class Operator(Struct, Generic[Edited], frozen=True):
    """A way to break a capture; ``change`` returns None if it does not apply to the capture."""

    name: str
    description: str
    change: Callable[[Edited, Random], Expectation | None]


class Rewrite(Struct, Generic[Edited], frozen=True):
    """A way to write the same rules differently; ``change`` returns whether it changed anything."""

    name: str
    description: str
    change: Callable[[Edited, Random], bool]
