"""Sets and maps: what is listed of them in, collections and single elements out.

A container becomes a collection when a rule looks something up in it whose key is numbers; the rule says what the
numbers are, so that what the container says of its own type is not needed. What rules write is known beforehand.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from knft.interpret.nftables.document import ListedContainer
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.selectors import Number, Selector
from knft.interpret.nftables.values import Span, span
from knft.interpret.rules import Collection, Element, Field, Part, Verdict

Value = Verdict | tuple[int, ...] | None
Key = tuple[Number, ...]
CATCH_ALL = "*"


class Listed(Struct, frozen=True):
    """An element as it is listed: its key, a map's value, its comment."""

    key: Any
    value: Any = None
    comment: str = ""

    def parts(self, count: int) -> list[Any]:
        """Return the parts of its key; libnftables 1.0.6 loses some."""
        found = self.key["concat"] if isinstance(self.key, dict) and "concat" in self.key else [self.key]
        if not isinstance(found, list):
            msg = f"{found!r} is no concatenation"
            raise Malformed(msg)
        if len(found) != count:
            raise Uninterpreted
        return found


class Container(Struct, frozen=True):
    """A set or a map that a rule names or holds itself; ``blurred`` is one whose content rules change unseen."""

    name: str
    held: tuple[Listed, ...] | ListedContainer
    remembers: bool = False
    blurred: bool = False

    @property
    def seconds(self) -> int | None:
        """How long it remembers."""
        return self.held.timeout if isinstance(self.held, ListedContainer) else None

    def elements(self) -> tuple[Listed, ...]:
        """Return what it holds."""
        return self.held if isinstance(self.held, tuple) else read_elements(self.held.elements())


def read_elements(listed: list[Any]) -> tuple[Listed, ...]:
    """Return elements apart from what they are wrapped in."""
    return tuple(_element(item) for item in listed)


def _element(item: Any) -> Listed:
    value = None
    if isinstance(item, list):
        if len(item) != 2:  # noqa: PLR2004 - a key and a value
            msg = f"{item!r} is no element of a map"
            raise Malformed(msg)
        item, value = item
    comment = ""
    if isinstance(item, dict) and isinstance(wrapped := item.get("elem"), dict):
        comment = wrapped.get("comment", "")
        item = wrapped.get("val")
    if not isinstance(comment, str) or not isinstance(item, dict | str | int):
        msg = f"{item!r} is no element"
        raise Malformed(msg)
    return Listed(item, value, comment)


def numbers_only(selectors: Iterable[Selector]) -> Key:
    """Return selectors as a key of a collection, where all of them are numbers as they are."""
    found = tuple(selectors)
    if any(not isinstance(part, Number) or part.mask is not None for part in found):
        raise Uninterpreted
    return found  # type: ignore[return-value]


def parts_of(key: Key) -> tuple[Part, ...]:
    """Return a key as a lookup has it."""
    return tuple(part.part for part in key)


def is_random(key: Key) -> bool:
    """Tell whether two lookups of the key may differ."""
    return not all(isinstance(part.part, Field | int) for part in key)


def collection(
    container: Container, elements: Iterable[Listed], key: Key, read_value: Callable[[Any], Value]
) -> Collection:
    """Return the collection of all elements but a map's catch-all one."""
    collected = tuple(_collected(elements, key, read_value))
    return Collection(
        container.name, collected, container.remembers, container.seconds if container.remembers else None
    )


def _collected(listed: Iterable[Listed], key: Key, read_value: Callable[[Any], Value]) -> Iterator[Element]:
    for element in listed:
        if element.key == CATCH_ALL:
            if element.value is None:
                yield Element(tuple(part.kind.all for part in key), None, element.comment)
            continue
        spans = map(span, element.parts(len(key)), (part.kind for part in key))
        yield Element(tuple(map(_compact, spans)), read_value(element.value), element.comment)


def _compact(numbers: Span) -> int | Span:
    return numbers[0] if numbers[0] == numbers[1] else numbers


class Written(Struct, frozen=True):
    """What rules do to containers of their table: the names of those that they fill, and of those that are blurred."""

    remembering: frozenset[str] = frozenset()
    blurred: frozenset[str] = frozenset()
