"""Tests: what a selector is compared with, in, and the steps that say so, out.

A test may need several ways to be said (``ct status dnat,snat``): ways exclude each other, and each becomes a rule of
its own. A way with ``Never`` passes nothing, no way at all means the same.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import singledispatch
from typing import Any, cast

from knft.interpret.nftables.marks import ALL, Mark
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.selectors import (
    FirstPacket,
    Fixed,
    InterfaceName,
    Number,
    Opaque,
    Selector,
    Symbol,
    flag_bits,
)
from knft.interpret.nftables.values import Kind, spans
from knft.interpret.ranges import Ranges, common, ranges, single
from knft.interpret.rules import (
    AddressType,
    Chance,
    Field,
    HasState,
    Interface,
    Marked,
    Never,
    Random,
    State,
    Step,
    Translated,
    Unknown,
    Within,
)

Way = tuple[Step, ...]
Ways = tuple[Way, ...]
PASSES: Ways = ((),)
FAILS: Ways = ((Never(),),)
_NEW: frozenset[State] = frozenset({"new"})
_CATCH_ALL = "*"


def fixed(result: bool) -> Ways:  # noqa: FBT001 - it is the value
    """Return a test whose result is known."""
    return PASSES if result else FAILS


@singledispatch
def equal(selector: Selector, _values: list[Any], *, inverted: bool, text: str) -> Ways:
    """Return the test that the selector is one of some constants, or none of them."""
    raise TypeError(selector, inverted, text)


@equal.register
def _(selector: Opaque, _values: list[Any], *, inverted: bool, text: str) -> Ways:
    del inverted
    return ((*selector.needs, Unknown(text)),)


@equal.register
def _(selector: Number, values: list[Any], *, inverted: bool, text: str) -> Ways:
    del text
    where = _unmasked(spans(values, selector.kind), selector)
    return number_within(selector, where, inverted=inverted)


def number_within(selector: Number, where: Ranges, *, inverted: bool = False) -> Ways:
    """Return the test that a number is in some ranges."""
    part = selector.part
    if isinstance(part, Field):
        return ((*selector.needs, Within(part, where, inverted)),)
    if isinstance(part, Random):
        drawn = ((part.offset, part.offset + part.modulus - 1),)
        hits = sum(last - first + 1 for first, last in common(where, drawn))
        share = Fraction(hits, part.modulus)
        share = 1 - share if inverted else share
        return fixed(share == 1) if share in (0, 1) else ((Chance(share),),)
    return fixed(bool(common(where, single(part))) != inverted)


def _unmasked(where: Ranges, selector: Number) -> Ranges:
    """Return the numbers that are in the ranges after the mask; only a mask of leading bits leaves ranges."""
    if selector.mask is None:
        return where
    hidden = selector.kind.all[1] ^ selector.mask
    if hidden & (hidden + 1) or not isinstance(selector.part, Field):
        raise Uninterpreted
    size = hidden + 1
    seen = ((-(-first // size) * size, last // size * size) for first, last in where)
    return ranges((low, high + hidden) for low, high in seen if low <= high)


@equal.register
def _(selector: Mark, values: list[Any], *, inverted: bool, text: str) -> Ways:
    del text
    where = spans(values, Kind.MARK)
    if selector.flip:
        if any(first != last for first, last in where):
            raise Uninterpreted
        where = ranges((first ^ selector.flip, first ^ selector.flip) for first, _ in where)
    return ((_marked(selector.keep, where, inverted=inverted),),)


def _marked(keep: int, where: Ranges, *, inverted: bool) -> Step:
    """Return the test of a mark; libnftables 1.0.6 lists some masks as prefixes, which are said as masks again."""
    if keep == ALL and len(where) == 1:
        first, last = where[0]
        size = last - first + 1
        if 1 < size <= ALL and not size & (size - 1) and not first % size:
            return Marked(ALL ^ (size - 1), single(first), inverted)
    return Marked(keep, where, inverted)


@equal.register
def _(selector: InterfaceName, values: list[Any], *, inverted: bool, text: str) -> Ways:
    del text
    names = tuple(_interface(value) for value in values)
    field = selector.field
    return ((Interface(field, names, inverted),),)


def _interface(value: Any) -> str:
    """Return a name; a number is an interface that was not there when the rules were listed."""
    if not isinstance(value, str):
        if isinstance(value, dict):
            raise Uninterpreted
        msg = f"{value!r} is no interface"
        raise Malformed(msg)
    if value.isdigit() or "\\" in value:
        raise Uninterpreted
    return value


@equal.register
def _(selector: Fixed, values: list[Any], *, inverted: bool, text: str) -> Ways:
    del text
    return fixed(any(_is_one_of(value, selector.spellings) for value in values) != inverted)


def _is_one_of(value: Any, spellings: tuple[str | int | bool, ...]) -> bool:
    is_truth = isinstance(spellings[0], bool)
    if isinstance(value, bool) != is_truth or not isinstance(value, str | int):
        raise Uninterpreted
    return value in spellings


@equal.register
def _(selector: FirstPacket, values: list[Any], *, inverted: bool, text: str) -> Ways:
    seen = selector.bits if selector.mask is None else selector.bits & selector.mask
    result = any(flag_bits(value, selector.names) == seen for value in values) != inverted
    return first_packet(selector, result=result, text=text)


def first_packet(selector: FirstPacket, *, result: bool, text: str) -> Ways:
    """Return a test that is known for a connection's first packet alone."""
    later = (*selector.needs, HasState(_NEW, inverted=True), Unknown(text))
    return ((*selector.needs, HasState(_NEW)), later) if result else (later,)


@equal.register
def _(selector: Symbol, values: list[Any], *, inverted: bool, text: str) -> Ways:
    if selector.mask is not None:
        return _masked_symbol(selector, selector.mask, values, inverted=inverted, text=text)
    if selector.domain == "status":
        # Several bits are set at once: to be equal to one is another thing than to have it.
        raise Uninterpreted
    return _SYMBOLS[selector.domain](symbols(selector, values), inverted, text)


def _masked_symbol(
    selector: Symbol, mask: tuple[str | int, ...], values: list[Any], *, inverted: bool, text: str
) -> Ways:
    """Return the test ``x & flags == 0``, which is of having none of them, or ``x & flag == flag``."""
    plain = Symbol(selector.domain, selector.numbers)
    if values == [0]:
        return any_bit(plain, list(mask), inverted=not inverted, text=text)
    if len(mask) == 1 and values in ([mask[0]], [[mask[0]]]):
        return any_bit(plain, list(mask), inverted=inverted, text=text)
    raise Uninterpreted


def any_bit(selector: Selector, values: list[Any], *, inverted: bool, text: str) -> Ways:
    """Return the test that one of several flags is set, or that none is."""
    if isinstance(selector, FirstPacket):
        wanted = flag_bits(values, selector.names)
        return first_packet(selector, result=bool(selector.bits & wanted) != inverted, text=text)
    if isinstance(selector, Symbol) and selector.domain == "status":
        return _status(symbols(selector, values), inverted=inverted)
    if isinstance(selector, Symbol):
        return equal(selector, values, inverted=inverted, text=text)
    if isinstance(selector, Opaque):
        return ((*selector.needs, Unknown(text)),)
    raise Uninterpreted


def symbols(selector: Symbol, values: Iterable[Any]) -> frozenset[str]:
    """Return the words that are meant; in a set, a combination of bits is one that no packet has."""
    return frozenset(_symbol(selector, value) for value in values)


def _symbol(selector: Symbol, value: Any) -> str:
    if isinstance(value, str) and value != _CATCH_ALL:
        return "host" if selector.domain == "packet type" and value == "unicast" else value
    if type(value) is int and value in selector.numbers:
        return selector.numbers[value]
    raise Uninterpreted


def _status(names: frozenset[str], *, inverted: bool) -> Ways:
    if not names <= {"dnat", "snat"}:
        raise Uninterpreted
    both = [Translated(what) for what in ("dnat", "snat") if what in names]
    if inverted:
        return (tuple(Translated(test.what, inverted=True) for test in both),)
    ways: list[Way] = [(both[0],)] if both else []
    if len(both) == 2:  # noqa: PLR2004 - both
        ways.append((Translated("dnat", inverted=True), both[1]))
    return tuple(ways)


def _state(names: frozenset[str], inverted: bool, _text: str) -> Ways:  # noqa: FBT001 - a row of the table
    if not names <= {"new", "established", "related", "invalid", "untracked"}:
        raise Uninterpreted
    return ((HasState(cast("frozenset[State]", names), inverted),),)


def _source_type(names: frozenset[str], inverted: bool, _text: str) -> Ways:  # noqa: FBT001 - a row of the table
    return ((AddressType(Field.SOURCE, names, inverted),),)


def _destination_type(names: frozenset[str], inverted: bool, _text: str) -> Ways:  # noqa: FBT001 - a row of the table
    return ((AddressType(Field.DESTINATION, names, inverted),),)


_LOCAL = frozenset({"local"})


def _type_on_interface(names: frozenset[str], inverted: bool, text: str) -> Ways:  # noqa: FBT001 - a row of the table
    """Return a test of a type that counts other interfaces' addresses as unicast.

    Whose address a local one is is not known, so that it matters only where the two types lead to different results.
    """
    plain = AddressType(Field.DESTINATION, names, inverted)
    if ("local" in names) == ("unicast" in names):
        return ((plain,),)
    local, elsewhere = (AddressType(Field.DESTINATION, _LOCAL, away) for away in (False, True))
    return (local, Unknown(text)), (elsewhere, plain)


_BY_PACKET_TYPE = frozenset({"broadcast", "multicast"})


def _packet_type(names: frozenset[str], inverted: bool, _text: str) -> Ways:  # noqa: FBT001 - a row of the table
    """Return a test of the destination: Linux forwards and delivers to others' link addresses nothing else."""
    if not names <= _BY_PACKET_TYPE | {"host", "other"}:
        raise Uninterpreted
    wanted = (_BY_PACKET_TYPE | {"host"}) - names if inverted else names
    if "host" in wanted:
        others = _BY_PACKET_TYPE - wanted
        return ((AddressType(Field.DESTINATION, others, inverted=True),),) if others else PASSES
    types = wanted & _BY_PACKET_TYPE
    return ((AddressType(Field.DESTINATION, types),),) if types else FAILS


_SYMBOLS: dict[str, Callable[[frozenset[str], bool, str], Ways]] = {
    "state": _state,
    "source type": _source_type,
    "destination type": _destination_type,
    "type on interface": _type_on_interface,
    "packet type": _packet_type,
}
