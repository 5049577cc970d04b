"""Converts a statement of the listing to alternatives, and tells whether it is an action or a test."""

from collections.abc import Callable
from typing import Any, NamedTuple

from knft.errors import CaptureError
from knft.interpret.alternatives import ALWAYS, NEVER, Alternative, Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.lookups import MapUse, look_up, match_in_set
from knft.interpret.nftables.marks import read_mark
from knft.interpret.nftables.matching import equals_any, has_any_flag, number_in_ranges
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import Number, Selector, UninterpretedSelector, read_key
from knft.interpret.nftables.sets_and_maps import Key, key_parts, numeric_key
from knft.interpret.nftables.text import statement_text
from knft.interpret.nftables.translation import translate_to_address, translate_to_interface_address
from knft.interpret.nftables.values import ValueKind, number
from knft.interpret.ranges import ranges
from knft.interpret.replies import PORT_UNREACHABLE, TCP_RESET, reply_name
from knft.interpret.rules import (
    AddToSet,
    DnatMapLookup,
    HashedFields,
    LookUpPriority,
    SetMark,
    SetPriority,
    Step,
    Unknown,
    Verdict,
    VmapLookup,
)


class Effect(NamedTuple):
    """What a statement does: its alternatives, and whether it is an action or only a test."""

    alternatives: Alternatives
    is_action: bool


NO_EFFECT = Effect(ALWAYS, is_action=False)
Reader = Callable[[Any, Scope, str], Alternatives]


def read_statement(listed: Any, scope: Scope) -> Effect:
    """Return what a statement does; a form that is not interpreted becomes ``Unknown``."""
    if isinstance(listed, str):
        # libnftables lists statements for which it has no JSON as text.
        return Effect(((Unknown(statement_text(listed)),),), is_action=True)
    if not isinstance(listed, dict) or len(listed) != 1:
        msg = f"invalid statement {listed!r}"
        raise CaptureError(msg)
    ((form, inner),) = listed.items()
    if form in _WITHOUT_EFFECT or (form == "xt" and _extension(inner) in _EXTENSIONS_WITHOUT_EFFECT):
        return NO_EFFECT
    text = statement_text(listed)
    is_action = form not in _TESTS and not (form == "xt" and _extension(inner)[0] == "match")
    try:
        alternatives = _READERS[form](inner, scope, text) if form in _READERS else ((Unknown(text),),)
    except NotInterpretedError:
        alternatives = ((Unknown(text),),)
    # A priority only matters to later lookups: a rule that sets nothing else has no effect by itself.
    is_action &= not all(isinstance(step, LookUpPriority | SetPriority) for steps in alternatives for step in steps)
    return Effect(alternatives, is_action) if alternatives != ALWAYS or not is_action else NO_EFFECT


# Copies, marks for tc or SELinux, and conntrack attributes do not change where the packet goes. "flow" is for later
# packets. For maps that rules write, see rule_writes.py.
_WITHOUT_EFFECT = frozenset({
    "counter", "log", "last", "dup", "secmark", "ct helper", "ct timeout", "ct expectation", "flow", "map", "continue",
})  # fmt: skip
_TESTS = frozenset({"match", "limit", "quota", "ct count", "connlimit", "meter"})
_EXTENSIONS_WITHOUT_EFFECT = frozenset({
    ("match", "comment"), ("target", "LOG"), ("target", "NFLOG"), ("target", "TRACE"), ("target", "TCPMSS"),
    ("target", "CHECKSUM"), ("watcher", "LOG"), ("watcher", "NFLOG"),
})  # fmt: skip


def _extension(inner: Any) -> tuple[str, str]:
    """Return the type and the name of an extension of iptables-nft; old versions of nft list neither."""
    match inner:
        case {"type": str(kind), "name": str(name)}:
            return kind, name
    return "", ""


_COMPARISONS = frozenset({"<", ">", "<=", ">="})


def _read_match(inner: Any, scope: Scope, text: str) -> Alternatives:
    match inner:
        case {"op": str(operator), "left": left, "right": right}:
            selectors = read_key(left, scope.version)
        case _:
            msg = f"invalid match {inner!r}"
            raise CaptureError(msg)
    found = selectors[0]
    if _is_set_reference(right) or len(selectors) > 1:
        return _match_in_set(scope, selectors, operator, right, text)
    if isinstance(found, UninterpretedSelector):
        return ((*found.implicit_tests, Unknown(text)),)
    if operator in _COMPARISONS:
        return _compare(found, operator, right)
    if operator in ("in", "!"):
        values = right if isinstance(right, list) else [right]
        return has_any_flag(found, values, inverted=operator == "!", text=text)
    return equals_any(found, [right], inverted=_is_inverted(operator), text=text)


def _is_set_reference(right: Any) -> bool:
    return (isinstance(right, str) and right.startswith("@")) or (isinstance(right, dict) and "set" in right)


def _is_inverted(operator: str) -> bool:
    if operator not in ("==", "!=", "in"):
        raise NotInterpretedError
    return operator == "!="


def _match_in_set(scope: Scope, selectors: tuple[Selector, ...], operator: str, right: Any, text: str) -> Alternatives:
    data = right if _is_set_reference(right) else {"set": [right]}
    return match_in_set(scope, selectors, data, inverted=_is_inverted(operator), text=text)


def _compare(selector: Selector, operator: str, right: Any) -> Alternatives:
    if not isinstance(selector, Number) or selector.mask is not None:
        raise NotInterpretedError
    low, high = selector.kind.full_range
    bound = number(right, selector.kind)
    first, last = {
        "<": (low, bound - 1), "<=": (low, bound), ">": (bound + 1, high), ">=": (bound, high),
    }[operator]  # fmt: skip
    return number_in_ranges(selector, ranges([(first, last)])) if first <= last else NEVER


def _verdict_reader(form: str) -> Reader:
    def read(inner: Any, scope: Scope, _text: str) -> Alternatives:
        return ((scope.verdict({form: inner}),),)

    return read


def _read_reject(inner: Any, scope: Scope, _text: str) -> Alternatives:
    match inner:
        case {"type": "tcp reset"}:
            reply = TCP_RESET
        case {"expr": str(name)}:
            reply = reply_name(name, scope.version)
        case _:
            reply = PORT_UNREACHABLE
    return ((Verdict("reject", reply=reply),),)


def _read_vmap(inner: Any, scope: Scope, text: str) -> Alternatives:
    def by_value(listed: Any) -> Alternative:
        verdict = scope.verdict(listed)
        return () if verdict.kind == "continue" else (verdict,)

    def by_collection(name: str, key: Key) -> Step:
        return VmapLookup(name, key_parts(key))

    match inner:
        case {"key": key, "data": data}:
            return look_up(
                scope, read_key(key, scope.version), data, MapUse(scope.verdict, by_collection, by_value), text
            )
    msg = f"invalid verdict map {inner!r}"
    raise CaptureError(msg)


def _read_mangle(inner: Any, scope: Scope, text: str) -> Alternatives:
    match inner:
        case {"key": {"meta": {"key": "mark"}}, "value": value}:
            return _set_mark(value, scope, text)
        case {"key": {"meta": {"key": "priority"}}, "value": value}:
            return _set_priority(value, scope, text)
        case {"key": dict(key), "value": _} if _has_no_effect(key):
            return ALWAYS
        case {"key": dict(), "value": _}:
            raise NotInterpretedError
    msg = f"invalid mangle statement {inner!r}"
    raise CaptureError(msg)


def _has_no_effect(key: dict[str, Any]) -> bool:
    """Return whether changing a field has no effect on where the packet goes.

    No test of these fields is interpreted. Fields that have an effect are the conntrack zone, which selects the
    connection, and ``pkttype``, addresses, ports and TTL.
    """
    match key:
        case {"meta": {"key": "nftrace" | "secmark"}} | {"ct": {"key": "mark" | "event" | "label" | "helper"}}:
            return True
        case {"ct": {"key": "secmark"}} | {"tcp option": _} | {"payload": {"field": "dscp" | "ecn" | "flowlabel"}}:
            return True
    return False


def _set_mark(value: Any, scope: Scope, text: str) -> Alternatives:
    match value:
        case {"map": {"key": key, "data": data}}:
            use = MapUse(_not_a_collection, lambda name, key: DnatMapLookup(name, key_parts(key)), _set_constant_mark)
            return look_up(scope, read_key(key, scope.version), data, use, text)
    mark = read_mark(value)
    if mark is None:
        raise NotInterpretedError
    return ((SetMark(mark.keep, mark.flip),),)


def _set_priority(value: Any, scope: Scope, text: str) -> Alternatives:
    """Return the change of the priority; it becomes unknown if the value is not interpreted."""
    try:
        match value:
            case {"map": {"key": key, "data": data}}:
                use = MapUse(
                    lambda listed: (number(listed, ValueKind.PRIORITY),),
                    lambda name, key: LookUpPriority(name, key_parts(key)),
                    lambda listed: (SetPriority(number(listed, ValueKind.PRIORITY)),),
                )
                found = look_up(scope, read_key(key, scope.version), data, use, text)
                if not any(isinstance(step, Unknown) for steps in found for step in steps):
                    return found
            case str() | int():
                return ((SetPriority(number(value, ValueKind.PRIORITY)),),)
    except NotInterpretedError:
        pass
    return ((SetPriority(None),),)


def _not_a_collection(_listed: Any) -> None:
    raise NotInterpretedError


def _set_constant_mark(listed: Any) -> Alternative:
    return (SetMark(0, number(listed, ValueKind.MARK)),)


def _update_set(inner: Any, scope: Scope, text: str) -> Alternatives:
    match inner:
        case {"op": "add" | "update", "elem": element, "set": str(name)}:
            pass
        case {"op": "delete"}:
            # rule_writes.py marks the set as unknown, so that lookups in it are not interpreted.
            return ALWAYS
        case _:
            msg = f"invalid set statement {inner!r}"
            raise CaptureError(msg)
    key, seconds = updated_key(element)
    parts = numeric_key(read_key(key, scope.version))
    if any(isinstance(part.part, HashedFields) for part in parts):
        raise NotInterpretedError
    collection = scope.objects.add_collection(scope.set_or_map(name), parts, _no_value)
    step = AddToSet(collection, key_parts(parts), seconds)
    # Statements for each element, such as a limit, are tests.
    tests = [next(iter(it), "") for it in inner.get("stmt") or [] if isinstance(it, dict)]
    implicit_tests = tuple(test for part in parts for test in part.implicit_tests)
    return ((*implicit_tests, step, *(() if set(tests) <= {"counter", "last"} else (Unknown(text),))),)


def _no_value(listed: Any) -> None:
    if listed is not None:
        raise NotInterpretedError


def updated_key(element: Any) -> tuple[Any, int | None]:
    """Return the key that a rule adds to a set, and the timeout in seconds; None if it gives none."""
    if not isinstance(element, dict) or "elem" not in element:
        return element, None
    match element["elem"]:
        case {"val": key, "timeout": int(seconds)}:
            return key, seconds
        case {"val": key}:
            return key, None
    msg = f"invalid element {element!r}"
    raise CaptureError(msg)


_READERS: dict[str, Reader] = {
    "match": _read_match,
    "accept": _verdict_reader("accept"),
    "drop": _verdict_reader("drop"),
    "return": _verdict_reader("return"),
    "jump": _verdict_reader("jump"),
    "goto": _verdict_reader("goto"),
    "reject": _read_reject,
    "vmap": _read_vmap,
    "mangle": _read_mangle,
    "set": _update_set,
    "dnat": lambda inner, scope, text: translate_to_address("dnat", inner, scope, text),
    "snat": lambda inner, scope, text: translate_to_address("snat", inner, scope, text),
    "redirect": lambda inner, scope, text: translate_to_interface_address("dnat", inner, scope, text),
    "masquerade": lambda inner, scope, text: translate_to_interface_address("snat", inner, scope, text),
}
