"""Statements: what each does to a packet, as steps, or that it does nothing."""

from collections.abc import Callable
from typing import Any, NamedTuple

from knft.interpret.nftables.containers import Key, numbers_only, parts_of
from knft.interpret.nftables.lookups import Use, choose, in_set
from knft.interpret.nftables.marks import read_mark
from knft.interpret.nftables.matching import FAILS, PASSES, Way, Ways, any_bit, equal, number_within
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import Number, Opaque, Selector, read_key
from knft.interpret.nftables.text import statement_text
from knft.interpret.nftables.translation import to_address, to_self
from knft.interpret.nftables.values import Kind, number
from knft.interpret.ranges import ranges
from knft.interpret.rules import Choose, Remember, SetMark, Step, TranslateBy, Unknown, Verdict


class Effect(NamedTuple):
    """What a statement says: its ways, and whether it acts or only tests."""

    ways: Ways
    acts: bool


NOTHING = Effect(PASSES, acts=False)
Reader = Callable[[Any, Scope, str], Ways]


def read_statement(listed: Any, scope: Scope) -> Effect:
    """Return what a statement does; what is not interpreted is an ``Unknown`` that acts."""
    if isinstance(listed, str):
        # libnftables lists as text what it has no JSON for.
        return Effect(((Unknown(statement_text(listed)),),), acts=True)
    if not isinstance(listed, dict) or len(listed) != 1:
        msg = f"{listed!r} is no statement"
        raise Malformed(msg)
    ((form, inner),) = listed.items()
    if form in _WITHOUT_EFFECT or (form == "xt" and _extension(inner) in _EXTENSIONS_WITHOUT_EFFECT):
        return NOTHING
    text = statement_text(listed)
    acts = form not in _TESTS and not (form == "xt" and _extension(inner)[0] == "match")
    try:
        ways = _READERS[form](inner, scope, text) if form in _READERS else ((Unknown(text),),)
    except Uninterpreted:
        ways = ((Unknown(text),),)
    return Effect(ways, acts) if ways != PASSES or not acts else NOTHING


# Sending a copy, marking for tc or SELinux, and what conntrack shall know of a connection do not decide its fate.
# "flow" and "offload" are for later packets; maps that a rule writes are taken care of where they are looked up.
_WITHOUT_EFFECT = frozenset({
    "counter", "log", "last", "dup", "secmark", "ct helper", "ct timeout", "ct expectation", "flow", "map", "continue",
})  # fmt: skip
_TESTS = frozenset({"match", "limit", "quota", "ct count", "connlimit", "meter"})
_EXTENSIONS_WITHOUT_EFFECT = frozenset({
    ("match", "comment"), ("target", "LOG"), ("target", "NFLOG"), ("target", "TRACE"), ("target", "TCPMSS"),
    ("target", "CHECKSUM"), ("watcher", "LOG"), ("watcher", "NFLOG"),
})  # fmt: skip


def _extension(inner: Any) -> tuple[str, str]:
    """Return what iptables-nft has put there; old versions of nft do not say."""
    match inner:
        case {"type": str(kind), "name": str(name)}:
            return kind, name
    return "", ""


_ORDERS = frozenset({"<", ">", "<=", ">="})


def _match(inner: Any, scope: Scope, text: str) -> Ways:
    match inner:
        case {"op": str(operator), "left": left, "right": right}:
            selectors = read_key(left, scope.version)
        case _:
            msg = f"{inner!r} is no match"
            raise Malformed(msg)
    found = selectors[0]
    if _is_set(right) or len(selectors) > 1:
        return _in_set(scope, selectors, operator, right, text)
    if isinstance(found, Opaque):
        return ((*found.needs, Unknown(text)),)
    if operator in _ORDERS:
        return _ordered(found, operator, right)
    if operator in ("in", "!"):
        values = right if isinstance(right, list) else [right]
        return any_bit(found, values, inverted=operator == "!", text=text)
    return equal(found, [right], inverted=_inverted(operator), text=text)


def _is_set(right: Any) -> bool:
    return (isinstance(right, str) and right.startswith("@")) or (isinstance(right, dict) and "set" in right)


def _inverted(operator: str) -> bool:
    if operator not in ("==", "!=", "in"):
        raise Uninterpreted
    return operator == "!="


def _in_set(scope: Scope, selectors: tuple[Selector, ...], operator: str, right: Any, text: str) -> Ways:
    data = right if _is_set(right) else {"set": [right]}
    return in_set(scope, selectors, data, inverted=_inverted(operator), text=text)


def _ordered(selector: Selector, operator: str, right: Any) -> Ways:
    if not isinstance(selector, Number) or selector.mask is not None:
        raise Uninterpreted
    low, high = selector.kind.all
    bound = number(right, selector.kind)
    first, last = {
        "<": (low, bound - 1), "<=": (low, bound), ">": (bound + 1, high), ">=": (bound, high),
    }[operator]  # fmt: skip
    return number_within(selector, ranges([(first, last)])) if first <= last else FAILS


def _verdict(form: str) -> Reader:
    def read(inner: Any, scope: Scope, _text: str) -> Ways:
        return ((scope.verdict({form: inner}),),)

    return read


def _reject(_inner: Any, _scope: Scope, _text: str) -> Ways:
    return ((Verdict("reject"),),)


def _vmap(inner: Any, scope: Scope, text: str) -> Ways:
    def by_value(listed: Any) -> Way:
        verdict = scope.verdict(listed)
        return () if verdict.kind == "continue" else (verdict,)

    def by_collection(name: str, key: Key) -> Step:
        return Choose(name, parts_of(key))

    match inner:
        case {"key": key, "data": data}:
            return choose(scope, read_key(key, scope.version), data, Use(scope.verdict, by_collection, by_value), text)
    msg = f"{inner!r} is no verdict map"
    raise Malformed(msg)


def _mangle(inner: Any, scope: Scope, text: str) -> Ways:
    match inner:
        case {"key": {"meta": {"key": "mark"}}, "value": value}:
            return _set_mark(value, scope, text)
        case {"key": dict(key), "value": _} if _harmless(key):
            return PASSES
        case {"key": dict(), "value": _}:
            raise Uninterpreted
    msg = f"{inner!r} changes nothing"
    raise Malformed(msg)


def _harmless(key: dict[str, Any]) -> bool:
    """Tell whether what is changed decides nothing.

    Tests of it are not interpreted, wherever they are. A connection's zone, however, decides which connection it is,
    and ``pkttype``, addresses, ports, time to live decide where a packet goes.
    """
    match key:
        case {"meta": {"key": "priority" | "nftrace" | "secmark"}} | {
            "ct": {"key": "mark" | "event" | "label" | "helper"}
        }:
            return True
        case {"ct": {"key": "secmark"}} | {"tcp option": _} | {"payload": {"field": "dscp" | "ecn" | "flowlabel"}}:
            return True
    return False


def _set_mark(value: Any, scope: Scope, text: str) -> Ways:
    match value:
        case {"map": {"key": key, "data": data}}:
            use = Use(_no_collection, lambda name, key: TranslateBy(name, parts_of(key)), _marking)
            return choose(scope, read_key(key, scope.version), data, use, text)
    mark = read_mark(value)
    if mark is None:
        raise Uninterpreted
    return ((SetMark(mark.keep, mark.flip),),)


def _no_collection(_listed: Any) -> None:
    raise Uninterpreted


def _marking(listed: Any) -> Way:
    return (SetMark(0, number(listed, Kind.MARK)),)


def _remember(inner: Any, scope: Scope, text: str) -> Ways:
    match inner:
        case {"op": "add" | "update", "elem": element, "set": str(name)}:
            pass
        case {"op": "delete"}:
            # Lookups of such a set are not interpreted.
            return PASSES
        case _:
            msg = f"{inner!r} is no statement on a set"
            raise Malformed(msg)
    key, seconds = remembered_key(element)
    parts = numbers_only(read_key(key, scope.version))
    collection = scope.names.collected(scope.container(name), parts, _no_value)
    step = Remember(collection, parts_of(parts), seconds)
    # A limit for each element is a test.
    tests = [next(iter(it), "") for it in inner.get("stmt") or [] if isinstance(it, dict)]
    needs = tuple(need for part in parts for need in part.needs)
    return ((*needs, step, *(() if set(tests) <= {"counter", "last"} else (Unknown(text),))),)


def _no_value(listed: Any) -> None:
    if listed is not None:
        raise Uninterpreted


def remembered_key(element: Any) -> tuple[Any, int | None]:
    """Return the key that a rule puts into a set, and for how many seconds, where it says so."""
    if not isinstance(element, dict) or "elem" not in element:
        return element, None
    match element["elem"]:
        case {"val": key, "timeout": int(seconds)}:
            return key, seconds
        case {"val": key}:
            return key, None
    msg = f"{element!r} is no element"
    raise Malformed(msg)


_READERS: dict[str, Reader] = {
    "match": _match,
    "accept": _verdict("accept"),
    "drop": _verdict("drop"),
    "return": _verdict("return"),
    "jump": _verdict("jump"),
    "goto": _verdict("goto"),
    "reject": _reject,
    "vmap": _vmap,
    "mangle": _mangle,
    "set": _remember,
    "dnat": lambda inner, scope, text: to_address("dnat", inner, scope, text),
    "snat": lambda inner, scope, text: to_address("snat", inner, scope, text),
    "redirect": lambda inner, scope, text: to_self("dnat", inner, scope, text),
    "masquerade": lambda inner, scope, text: to_self("snat", inner, scope, text),
}
