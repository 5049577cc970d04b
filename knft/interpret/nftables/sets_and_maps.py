"""Sets and maps of the listing, and how a rule's lookup makes a collection of one.

A set or a map becomes a ``Collection`` when a rule looks up a key of numbers in it. The rule's expressions give the
type of each part of the key, so the type that is listed with the set or map is not needed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from knft.errors import CaptureError
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.listing import ListedSetOrMap
from knft.interpret.nftables.selectors import Number, Selector
from knft.interpret.nftables.values import Span, span
from knft.interpret.rules import Collection, Element, Field, KeyPart, Verdict

MapValue = Verdict | tuple[int, ...] | None
Key = tuple[Number, ...]
CATCH_ALL = "*"


class ListedElement(Struct, frozen=True):
    """An element as nft lists it: its key, its value if it is a map's, its comment."""

    key: Any
    value: Any = None
    comment: str = ""

    def key_parts(self, count: int) -> list[Any]:
        """Return the parts of the key; raise NotInterpretedError if there are not ``count``.

        libnftables 1.0.6 omits parts of some concatenations.
        """
        parts = self.key["concat"] if isinstance(self.key, dict) and "concat" in self.key else [self.key]
        if not isinstance(parts, list):
            msg = f"invalid concatenation {parts!r}"
            raise CaptureError(msg)
        if len(parts) != count:
            raise NotInterpretedError
        return parts


class SetOrMap(Struct, frozen=True):
    """A set or a map, named or anonymous.

    ``is_dynamic``: rules add keys to it. ``has_unknown_elements``: rules change it in a way that is not interpreted.
    """

    name: str
    listed: tuple[ListedElement, ...] | ListedSetOrMap
    is_dynamic: bool = False
    has_unknown_elements: bool = False

    @property
    def timeout_seconds(self) -> int | None:
        """The default timeout of its elements, in seconds."""
        return self.listed.timeout if isinstance(self.listed, ListedSetOrMap) else None

    def read_elements(self) -> tuple[ListedElement, ...]:
        """Return its elements."""
        return self.listed if isinstance(self.listed, tuple) else read_elements(self.listed.elements())


def read_elements(listed: list[Any]) -> tuple[ListedElement, ...]:
    """Return elements without the objects that nft wraps them in."""
    return tuple(_read_element(item) for item in listed)


def _read_element(item: Any) -> ListedElement:
    value = None
    if isinstance(item, list):
        if len(item) != 2:  # noqa: PLR2004 - a key and a value
            msg = f"invalid map element {item!r}"
            raise CaptureError(msg)
        item, value = item
    comment = ""
    if isinstance(item, dict) and isinstance(wrapped := item.get("elem"), dict):
        comment = wrapped.get("comment", "")
        item = wrapped.get("val")
    if not isinstance(comment, str) or not isinstance(item, dict | str | int):
        msg = f"invalid element {item!r}"
        raise CaptureError(msg)
    return ListedElement(item, value, comment)


def numeric_key(selectors: Iterable[Selector]) -> Key:
    """Return selectors as the key of a collection; raise NotInterpretedError unless all are unmasked numbers."""
    key = tuple(selectors)
    if any(not isinstance(part, Number) or part.mask is not None for part in key):
        raise NotInterpretedError
    return key  # type: ignore[return-value]


def key_parts(key: Key) -> tuple[KeyPart, ...]:
    """Return the key as steps of ``knft.interpret.rules`` have it."""
    return tuple(part.part for part in key)


def is_random_key(key: Key) -> bool:
    """Return whether a part of the key is a random number, so that two lookups may differ."""
    return not all(isinstance(part.part, Field | int) for part in key)


def build_collection(
    set_or_map: SetOrMap, elements: Iterable[ListedElement], key: Key, read_value: Callable[[Any], MapValue]
) -> Collection:
    """Return the collection of all elements, except a map's catch-all element."""
    collected = tuple(_collection_elements(elements, key, read_value))
    return Collection(
        set_or_map.name, collected, set_or_map.is_dynamic, set_or_map.timeout_seconds if set_or_map.is_dynamic else None
    )


def _collection_elements(
    listed: Iterable[ListedElement], key: Key, read_value: Callable[[Any], MapValue]
) -> Iterator[Element]:
    for element in listed:
        if element.key == CATCH_ALL:
            if element.value is None:
                yield Element(tuple(part.kind.full_range for part in key), None, element.comment)
            continue
        spans = map(span, element.key_parts(len(key)), (part.kind for part in key))
        yield Element(tuple(map(_compact, spans)), read_value(element.value), element.comment)


def _compact(numbers: Span) -> int | Span:
    return numbers[0] if numbers[0] == numbers[1] else numbers


class RuleWrites(Struct, frozen=True):
    """What the rules of a table do to its sets and maps, by name.

    They add keys of numbers to ``dynamic_sets``, and change ``unknown_sets_and_maps`` in ways that are not interpreted.
    """

    dynamic_sets: frozenset[str] = frozenset()
    unknown_sets_and_maps: frozenset[str] = frozenset()
