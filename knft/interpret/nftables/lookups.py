"""Converts a rule's lookup of a key in a set or map to alternatives.

If all parts of the key are numbers, the lookup becomes a step that looks the key up in a collection. If not (for
interfaces, states and marks), each element becomes an alternative.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from msgspec import Struct

from knft.errors import CaptureError
from knft.interpret.alternatives import Alternative, Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.marks import Mark
from knft.interpret.nftables.matching import equals_any
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import Number, Selector, UninterpretedSelector
from knft.interpret.nftables.sets_and_maps import (
    CATCH_ALL,
    Key,
    ListedElement,
    MapValue,
    SetOrMap,
    is_random_key,
    key_parts,
    numeric_key,
)
from knft.interpret.rules import InSet, Step, Unknown, Verdict

MAX_ALTERNATIVES = 256
"""Maximum number of alternatives of a rule; a match that needs more is not interpreted."""


def match_in_set(scope: Scope, selectors: Sequence[Selector], data: Any, *, inverted: bool, text: str) -> Alternatives:
    """Return the test that a key is in a set."""
    container = scope.set_or_map(data)
    if (implicit_tests := _implicit_tests_of_uninterpreted(selectors)) is not None:
        return ((*implicit_tests, Unknown(text)),)
    if len(selectors) == 1 and not _is_collection(selectors[0], container):
        keys = [element.key for element in scope.objects.constant_elements(container)]
        return equals_any(selectors[0], keys, inverted=inverted, text=text)
    try:
        key = numeric_key(selectors)
    except NotInterpretedError:
        return _expand_set(scope, selectors, container, text=text, inverted=inverted)
    name = scope.objects.add_collection(container, key, _no_value)
    return ((*_implicit_tests(selectors), InSet(name, key_parts(key), inverted)),)


def _is_collection(selector: Selector, set_or_map: SetOrMap) -> bool:
    is_named = not isinstance(set_or_map.listed, tuple)
    return is_named and isinstance(selector, Number) and selector.mask is None


def _no_value(listed: Any) -> None:
    """Accept an element of a set; a map that is used as a set is not interpreted."""
    if listed is not None:
        raise NotInterpretedError


def _implicit_tests(selectors: Iterable[Selector]) -> Alternative:
    return tuple(step for part in selectors if isinstance(part, Number) for step in part.implicit_tests)


def _implicit_tests_of_uninterpreted(selectors: Sequence[Selector]) -> Alternative | None:
    """Return nft's implicit tests for a key if a part of it is not interpreted; None if all parts are."""
    if not any(isinstance(part, UninterpretedSelector) for part in selectors):
        return None
    return tuple(
        step for part in selectors if isinstance(part, UninterpretedSelector | Number) for step in part.implicit_tests
    )


def _expand_set(
    scope: Scope, selectors: Sequence[Selector], set_or_map: SetOrMap, *, inverted: bool, text: str
) -> Alternatives:
    """Return an alternative for each element."""
    elements = scope.objects.constant_elements(set_or_map)
    if inverted or len(elements) > MAX_ALTERNATIVES:
        raise NotInterpretedError
    return tuple(steps for element in elements for steps in _match_element(selectors, element, text))


def _match_element(selectors: Sequence[Selector], element: ListedElement, text: str) -> Alternatives:
    """Return the test that the key equals an element's."""
    if any(isinstance(part, Number) and is_random_key((part,)) for part in selectors):
        raise NotInterpretedError
    tests = (
        equals_any(part, [value], inverted=False, text=text)
        for part, value in zip(selectors, element.key_parts(len(selectors)), strict=True)
    )
    return tuple(tuple(step for steps in alternatives for step in steps) for alternatives in product(*tests))


class MapUse(Struct, frozen=True):
    """What a statement does with the value that it finds in a map.

    ``read_value`` makes the listed value a value of a collection, ``by_collection`` makes the step that looks a key up
    in a collection, and ``by_value`` makes the steps for one listed value. ``suffix`` goes after the collection's name.
    """

    read_value: Callable[[Any], MapValue]
    by_collection: Callable[[str, Key], Step]
    by_value: Callable[[Any], Alternative]
    suffix: str = ""


def look_up(scope: Scope, selectors: Sequence[Selector], data: Any, use: MapUse, text: str) -> Alternatives:
    """Return the steps for the value that a map has for a key; the rule ends if it has none."""
    set_or_map = scope.set_or_map(data)
    if (implicit_tests := _implicit_tests_of_uninterpreted(selectors)) is not None:
        return ((*implicit_tests, Unknown(text)),)
    if set_or_map.is_dynamic or set_or_map.has_unknown_elements:
        raise NotInterpretedError
    try:
        return _by_collection(scope, selectors, set_or_map, use)
    except NotInterpretedError:
        return _expand_map(scope, selectors, set_or_map, use, text)


def _by_collection(scope: Scope, selectors: Sequence[Selector], set_or_map: SetOrMap, use: MapUse) -> Alternatives:
    key = numeric_key(selectors)
    renamed = SetOrMap(f"{set_or_map.name}{use.suffix}", set_or_map.listed)
    name = scope.objects.add_collection(renamed, key, use.read_value)
    catch_all = scope.objects.catch_all_element(name)
    if catch_all is not None and is_random_key(key):
        raise NotInterpretedError
    implicit_tests = _implicit_tests(selectors)
    found: Alternative = (*implicit_tests, use.by_collection(name, key))
    if catch_all is None:
        return (found,)
    return found, (*implicit_tests, InSet(name, key_parts(key), inverted=True), *use.by_value(catch_all.value))


def _expand_map(
    scope: Scope, selectors: Sequence[Selector], set_or_map: SetOrMap, use: MapUse, text: str
) -> Alternatives:
    """Return an alternative for each element, or for each value if the key has one part."""
    elements = scope.objects.constant_elements(set_or_map)
    if len(elements) > MAX_ALTERNATIVES:
        raise NotInterpretedError
    if len(selectors) == 1:
        alternatives = _group_by_value(selectors[0], elements, use, text)
    else:
        alternatives = [
            (*tests, *use.by_value(element.value))
            for element in elements
            for tests in _match_element(selectors, element, text)
        ]
    if any(isinstance(part, Mark) for part in selectors) and any(map(_has_jump, alternatives)):
        # The chain may change the mark, so that the next alternative would match when the chain returns.
        raise NotInterpretedError
    return tuple(alternatives)


def _has_jump(steps: Alternative) -> bool:
    return any(isinstance(step, Verdict) and step.kind == "jump" for step in steps)


def _group_by_value(selector: Selector, elements: Iterable[ListedElement], use: MapUse, text: str) -> list[Alternative]:
    """Return an alternative for each value of a map whose key has one part."""
    if isinstance(selector, Number) and is_random_key((selector,)):
        raise NotInterpretedError
    keys: dict[Alternative, list[Any]] = {}
    catch_all: list[Alternative] = []
    for element in elements:
        if element.key == CATCH_ALL:
            catch_all.append(use.by_value(element.value))
        else:
            keys.setdefault(use.by_value(element.value), []).append(element.key)
    tests = [(equals_any(selector, values, inverted=False, text=text), steps) for steps, values in keys.items()]
    if catch_all:
        all_keys = [key for values in keys.values() for key in values]
        tests += [(equals_any(selector, all_keys, inverted=True, text=text), steps) for steps in catch_all]
    return [(*test, *steps) for alternatives, steps in tests for test in alternatives]


def map_value_parts(listed: Any) -> list[Any]:
    """Return the parts of a map's value."""
    if isinstance(listed, dict) and "concat" in listed:
        if not isinstance(listed["concat"], list):
            msg = f"invalid concatenation {listed!r}"
            raise CaptureError(msg)
        return list(listed["concat"])
    if listed is None:
        msg = "map element without a value"
        raise CaptureError(msg)
    return [listed]
