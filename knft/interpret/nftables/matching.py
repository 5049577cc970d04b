"""Converts a match, a selector with the values that a rule compares it with, to alternatives.

Some matches need several alternatives, such as ``ct status dnat,snat``. No packet passes an alternative with ``Never``,
nor a match without alternatives.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import singledispatch
from typing import Any, cast

from knft.errors import CaptureError
from knft.interpret.alternatives import ALWAYS, NEVER, Alternative, Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.marks import ALL, Mark
from knft.interpret.nftables.selectors import (
    Constant,
    FirstPacketFlags,
    InterfaceName,
    Number,
    Selector,
    Symbol,
    UninterpretedSelector,
    flag_bits,
)
from knft.interpret.nftables.values import ValueKind, spans
from knft.interpret.ranges import Ranges, intersection, ranges, single
from knft.interpret.rules import (
    AddressType,
    Field,
    HashedFields,
    HasState,
    Interface,
    Marked,
    Probability,
    RandomNumber,
    State,
    Step,
    Translated,
    Unknown,
    Within,
)

_NEW: frozenset[State] = frozenset({"new"})
_CATCH_ALL = "*"


def constant_result(result: bool) -> Alternatives:  # noqa: FBT001 - the value itself, not an option
    """Return a test that has the same result for all packets."""
    return ALWAYS if result else NEVER


@singledispatch
def equals_any(selector: Selector, _values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    """Return the test that a selector equals one of some constants, or, inverted, none of them."""
    raise TypeError(selector, inverted, text)


@equals_any.register
def _(selector: UninterpretedSelector, _values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    del inverted
    return ((*selector.implicit_tests, Unknown(text)),)


@equals_any.register
def _(selector: Number, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    del text
    where = _ranges_under_mask(spans(values, selector.kind), selector)
    return number_in_ranges(selector, where, inverted=inverted)


def number_in_ranges(selector: Number, where: Ranges, *, inverted: bool = False) -> Alternatives:
    """Return the test that a number is in the ranges."""
    part = selector.part
    if part is Field.PRIORITY:
        raise NotInterpretedError  # The priority is known only where rules have set it.
    if isinstance(part, HashedFields):
        raise NotInterpretedError
    if isinstance(part, Field):
        return ((*selector.implicit_tests, Within(part, where, inverted)),)
    if isinstance(part, RandomNumber):
        drawn = ((part.offset, part.offset + part.modulus - 1),)
        hits = sum(last - first + 1 for first, last in intersection(where, drawn))
        share = Fraction(hits, part.modulus)
        share = 1 - share if inverted else share
        return constant_result(share == 1) if share in (0, 1) else ((Probability(share),),)
    return constant_result(bool(intersection(where, single(part))) != inverted)


def _ranges_under_mask(where: Ranges, selector: Number) -> Ranges:
    """Return the numbers whose masked value is in the ranges; only a mask of leading bits is interpreted."""
    if selector.mask is None:
        return where
    hidden = selector.kind.full_range[1] ^ selector.mask
    if hidden & (hidden + 1) or not isinstance(selector.part, Field):
        raise NotInterpretedError
    size = hidden + 1
    seen = ((-(-first // size) * size, last // size * size) for first, last in where)
    return ranges((low, high + hidden) for low, high in seen if low <= high)


@equals_any.register
def _(selector: Mark, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    del text
    where = spans(values, ValueKind.MARK)
    if selector.flip:
        if any(first != last for first, last in where):
            raise NotInterpretedError
        where = ranges((first ^ selector.flip, first ^ selector.flip) for first, _ in where)
    return ((_mark_test(selector.keep, where, inverted=inverted),),)


def _mark_test(keep: int, where: Ranges, *, inverted: bool) -> Step:
    """Return the test of a mark; a range that libnftables 1.0.6 lists instead of a mask becomes a mask again."""
    if keep == ALL and len(where) == 1:
        first, last = where[0]
        size = last - first + 1
        if 1 < size <= ALL and not size & (size - 1) and not first % size:
            return Marked(ALL ^ (size - 1), single(first), inverted)
    return Marked(keep, where, inverted)


@equals_any.register
def _(selector: InterfaceName, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    del text
    names = tuple(_interface_name(value) for value in values)
    field = selector.field
    return ((Interface(field, names, inverted),),)


def _interface_name(value: Any) -> str:
    """Return an interface name; nft lists a number if the interface does not exist any more."""
    if not isinstance(value, str):
        if isinstance(value, dict):
            raise NotInterpretedError
        msg = f"invalid interface {value!r}"
        raise CaptureError(msg)
    if value.isdigit() or "\\" in value:
        raise NotInterpretedError
    return value


@equals_any.register
def _(selector: Constant, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    del text
    return constant_result(any(_is_spelled(value, selector.spellings) for value in values) != inverted)


def _is_spelled(value: Any, spellings: tuple[str | int | bool, ...]) -> bool:
    is_truth = isinstance(spellings[0], bool)
    if isinstance(value, bool) != is_truth or not isinstance(value, str | int):
        raise NotInterpretedError
    return value in spellings


@equals_any.register
def _(selector: FirstPacketFlags, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    seen = selector.bits if selector.mask is None else selector.bits & selector.mask
    result = any(flag_bits(value, selector.names) == seen for value in values) != inverted
    return known_for_first_packet(selector, result=result, text=text)


def known_for_first_packet(selector: FirstPacketFlags, *, result: bool, text: str) -> Alternatives:
    """Return a test whose result is known only for the first packet of a connection."""
    later = (*selector.implicit_tests, HasState(_NEW, inverted=True), Unknown(text))
    return ((*selector.implicit_tests, HasState(_NEW)), later) if result else (later,)


@equals_any.register
def _(selector: Symbol, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    if selector.mask is not None:
        return _masked_symbol_test(selector, selector.mask, values, inverted=inverted, text=text)
    if selector.domain == "status":
        # Several bits may be set: a status that equals one bit is not the same as a status that has it.
        raise NotInterpretedError
    return _SYMBOL_TESTS[selector.domain](symbol_names(selector, values), inverted, text)


def _masked_symbol_test(
    selector: Symbol, mask: tuple[str | int, ...], values: list[Any], *, inverted: bool, text: str
) -> Alternatives:
    """Return the test ``x & flags == 0`` or ``x & flag == flag``."""
    plain = Symbol(selector.domain, selector.numbers)
    if values == [0]:
        return has_any_flag(plain, list(mask), inverted=not inverted, text=text)
    if len(mask) == 1 and values in ([mask[0]], [[mask[0]]]):
        return has_any_flag(plain, list(mask), inverted=inverted, text=text)
    raise NotInterpretedError


def has_any_flag(selector: Selector, values: list[Any], *, inverted: bool, text: str) -> Alternatives:
    """Return the test that one of several flags is set, or, inverted, that none is."""
    if isinstance(selector, FirstPacketFlags):
        wanted = flag_bits(values, selector.names)
        return known_for_first_packet(selector, result=bool(selector.bits & wanted) != inverted, text=text)
    if isinstance(selector, Symbol) and selector.domain == "status":
        return _status_test(symbol_names(selector, values), inverted=inverted)
    if isinstance(selector, Symbol):
        return equals_any(selector, values, inverted=inverted, text=text)
    if isinstance(selector, UninterpretedSelector):
        return ((*selector.implicit_tests, Unknown(text)),)
    raise NotInterpretedError


def symbol_names(selector: Symbol, values: Iterable[Any]) -> frozenset[str]:
    """Return the names of symbols; a combination of states is left out, as a packet has only one state."""
    if selector.domain == "state":
        values = [value for value in values if not _is_flag_combination(value)]
    return frozenset(_symbol_name(selector, value) for value in values)


def _is_flag_combination(value: Any) -> bool:
    match value:
        case {"|": [_, _, *_]}:
            return True
    return False


def _symbol_name(selector: Symbol, value: Any) -> str:
    if isinstance(value, str) and value != _CATCH_ALL:
        return "host" if selector.domain == "packet type" and value == "unicast" else value
    if type(value) is int and value in selector.numbers:
        return selector.numbers[value]
    raise NotInterpretedError


def _status_test(names: frozenset[str], *, inverted: bool) -> Alternatives:
    if not names <= {"dnat", "snat"}:
        raise NotInterpretedError
    both = [Translated(kind) for kind in ("dnat", "snat") if kind in names]
    if inverted:
        return (tuple(Translated(test.kind, inverted=True) for test in both),)
    alternatives: list[Alternative] = [(both[0],)] if both else []
    if len(both) == 2:  # noqa: PLR2004 - both
        alternatives.append((Translated("dnat", inverted=True), both[1]))
    return tuple(alternatives)


def _state_test(names: frozenset[str], inverted: bool, _text: str) -> Alternatives:  # noqa: FBT001 - see _SYMBOL_TESTS
    if not names:
        return constant_result(inverted)
    if not names <= {"new", "established", "related", "invalid", "untracked"}:
        raise NotInterpretedError
    return ((HasState(cast("frozenset[State]", names), inverted),),)


def _source_type_test(names: frozenset[str], inverted: bool, _text: str) -> Alternatives:  # noqa: FBT001 - see _SYMBOL_TESTS
    return ((AddressType(Field.SOURCE, names, inverted),),)


def _destination_type_test(names: frozenset[str], inverted: bool, _text: str) -> Alternatives:  # noqa: FBT001 - see _SYMBOL_TESTS
    return ((AddressType(Field.DESTINATION, names, inverted),),)


_LOCAL = frozenset({"local"})


def _type_on_interface_test(names: frozenset[str], inverted: bool, text: str) -> Alternatives:  # noqa: FBT001 - see _SYMBOL_TESTS
    """Return the test ``fib daddr . iif type``, for which local addresses of other interfaces are unicast.

    Which interface has a local address is unknown, so the test is ``Unknown`` for local addresses, unless both types
    have the same result.
    """
    plain = AddressType(Field.DESTINATION, names, inverted)
    if ("local" in names) == ("unicast" in names):
        return ((plain,),)
    local, elsewhere = (AddressType(Field.DESTINATION, _LOCAL, away) for away in (False, True))
    unknown: Alternative = (local, Unknown(text))
    return (unknown,) if names == _LOCAL and not inverted else (unknown, (elsewhere, plain))


_GROUP_TYPES = frozenset({"broadcast", "multicast"})


def _packet_type_test(names: frozenset[str], inverted: bool, _text: str) -> Alternatives:  # noqa: FBT001 - see _SYMBOL_TESTS
    """Return ``meta pkttype`` as a test of the destination; Linux drops unicast packets to other link addresses."""
    if not names <= _GROUP_TYPES | {"host", "other"}:
        raise NotInterpretedError
    wanted = (_GROUP_TYPES | {"host"}) - names if inverted else names
    if "host" in wanted:
        others = _GROUP_TYPES - wanted
        return ((AddressType(Field.DESTINATION, others, inverted=True),),) if others else ALWAYS
    types = wanted & _GROUP_TYPES
    return ((AddressType(Field.DESTINATION, types),),) if types else NEVER


_SYMBOL_TESTS: dict[str, Callable[[frozenset[str], bool, str], Alternatives]] = {
    "state": _state_test,
    "source type": _source_type_test,
    "destination type": _destination_type_test,
    "type on interface": _type_on_interface_test,
    "packet type": _packet_type_test,
}
