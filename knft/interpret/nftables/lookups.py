"""Sets and maps in rules: whether a key is in one, and what one has for it.

Where all parts of a key are numbers, the kernel's lookup is a lookup here. Where not (interfaces, states, marks), each
element becomes a way of its own.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from msgspec import Struct

from knft.interpret.nftables.containers import (
    CATCH_ALL,
    Container,
    Key,
    Listed,
    Value,
    is_random,
    numbers_only,
    parts_of,
)
from knft.interpret.nftables.marks import Mark
from knft.interpret.nftables.matching import Way, Ways, equal
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import Number, Opaque, Selector
from knft.interpret.rules import InSet, Step, Unknown, Verdict

MOST_WAYS = 256
"""How many elements are said one by one; a rule with more is not interpreted."""


def in_set(scope: Scope, selectors: Sequence[Selector], data: Any, *, inverted: bool, text: str) -> Ways:
    """Return the test that a key is in a set."""
    container = scope.container(data)
    if (needs := _opaque(selectors)) is not None:
        return ((*needs, Unknown(text)),)
    if len(selectors) == 1 and not _is_collection(selectors[0], container):
        keys = [element.key for element in scope.names.fixed_elements(container)]
        return equal(selectors[0], keys, inverted=inverted, text=text)
    try:
        key = numbers_only(selectors)
    except Uninterpreted:
        return _one_by_one(scope, selectors, container, text=text, inverted=inverted)
    name = scope.names.collected(container, key, _no_value)
    return ((*_needs(selectors), InSet(name, parts_of(key), inverted)),)


def _is_collection(selector: Selector, container: Container) -> bool:
    named = not isinstance(container.held, tuple)
    return named and isinstance(selector, Number) and selector.mask is None


def _no_value(listed: Any) -> None:
    """Return the value of a set's element; a map that is used as a set is not interpreted."""
    if listed is not None:
        raise Uninterpreted


def _needs(selectors: Iterable[Selector]) -> Way:
    return tuple(step for part in selectors if isinstance(part, Number) for step in part.needs)


def _opaque(selectors: Sequence[Selector]) -> Way | None:
    """Return what is known to be tested where a part is not interpreted."""
    if not any(isinstance(part, Opaque) for part in selectors):
        return None
    return tuple(step for part in selectors if isinstance(part, Opaque | Number) for step in part.needs)


def _one_by_one(
    scope: Scope, selectors: Sequence[Selector], container: Container, *, inverted: bool, text: str
) -> Ways:
    elements = scope.names.fixed_elements(container)
    if inverted or len(elements) > MOST_WAYS:
        raise Uninterpreted
    return tuple(way for element in elements for way in _way_of(selectors, element, text))


def _way_of(selectors: Sequence[Selector], element: Listed, text: str) -> Ways:
    """Return the test that a key is that of one element."""
    if any(isinstance(part, Number) and is_random((part,)) for part in selectors):
        raise Uninterpreted
    tests = (
        equal(part, [value], inverted=False, text=text)
        for part, value in zip(selectors, element.parts(len(selectors)), strict=True)
    )
    return tuple(tuple(step for way in ways for step in way) for ways in product(*tests))


class Use(Struct, frozen=True):
    """What a rule does with a map's value: as a value of a collection, as a step that asks it, as steps of its own."""

    read_value: Callable[[Any], Value]
    by_collection: Callable[[str, Key], Step]
    by_value: Callable[[Any], Way]
    suffix: str = ""


def choose(scope: Scope, selectors: Sequence[Selector], data: Any, use: Use, text: str) -> Ways:
    """Return what becomes of a key for which a map has a value; the rule ends where it has none."""
    container = scope.container(data)
    if (needs := _opaque(selectors)) is not None:
        return ((*needs, Unknown(text)),)
    if container.remembers or container.blurred:
        raise Uninterpreted
    try:
        return _by_collection(scope, selectors, container, use)
    except Uninterpreted:
        return _by_value(scope, selectors, container, use, text)


def _by_collection(scope: Scope, selectors: Sequence[Selector], container: Container, use: Use) -> Ways:
    key = numbers_only(selectors)
    renamed = Container(f"{container.name}{use.suffix}", container.held)
    name = scope.names.collected(renamed, key, use.read_value)
    other = scope.names.catch_all(name)
    if other is not None and is_random(key):
        raise Uninterpreted
    needs = _needs(selectors)
    found: Way = (*needs, use.by_collection(name, key))
    if other is None:
        return (found,)
    return found, (*needs, InSet(name, parts_of(key), inverted=True), *use.by_value(other.value))


def _by_value(scope: Scope, selectors: Sequence[Selector], container: Container, use: Use, text: str) -> Ways:
    elements = scope.names.fixed_elements(container)
    if len(elements) > MOST_WAYS:
        raise Uninterpreted
    if len(selectors) == 1:
        found = _grouped(selectors[0], elements, use, text)
    else:
        found = [(*way, *use.by_value(it.value)) for it in elements for way in _way_of(selectors, it, text)]
    if any(isinstance(part, Mark) for part in selectors) and any(map(_comes_back, found)):
        # What is jumped to may change the mark, and another element would be found when it returns.
        raise Uninterpreted
    return tuple(found)


def _comes_back(way: Way) -> bool:
    return any(isinstance(step, Verdict) and step.kind == "jump" for step in way)


def _grouped(selector: Selector, elements: Iterable[Listed], use: Use, text: str) -> list[Way]:
    """Return a way for each value of a map whose key has one part."""
    if isinstance(selector, Number) and is_random((selector,)):
        raise Uninterpreted
    keys: dict[Way, list[Any]] = {}
    others: list[Way] = []
    for element in elements:
        if element.key == CATCH_ALL:
            others.append(use.by_value(element.value))
        else:
            keys.setdefault(use.by_value(element.value), []).append(element.key)
    tests = [(equal(selector, values, inverted=False, text=text), steps) for steps, values in keys.items()]
    if others:
        named = [key for values in keys.values() for key in values]
        tests += [(equal(selector, named, inverted=True, text=text), steps) for steps in others]
    return [(*way, *steps) for ways, steps in tests for way in ways]


def value_parts(listed: Any) -> list[Any]:
    """Return the parts of a map's value."""
    if isinstance(listed, dict) and "concat" in listed:
        if not isinstance(listed["concat"], list):
            msg = f"{listed!r} is no concatenation"
            raise Malformed(msg)
        return list(listed["concat"])
    if listed is None:
        msg = "an element of a map has no value"
        raise Malformed(msg)
    return [listed]
