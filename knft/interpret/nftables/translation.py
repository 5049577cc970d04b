"""``dnat``, ``snat``, ``masquerade`` and ``redirect``: their forms in, steps out."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import structs

from knft.interpret.nftables.containers import Key, Value, numbers_only, parts_of
from knft.interpret.nftables.lookups import Use, choose, value_parts
from knft.interpret.nftables.matching import FAILS, Way, Ways
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import address_kind, read_key
from knft.interpret.nftables.values import Kind, as_address, number, span
from knft.interpret.ranges import Ranges, ranges
from knft.interpret.rules import Random, Step, Translate, TranslateBy

What = Literal["dnat", "snat"]
_KNOWN = frozenset({"addr", "port", "family", "flags", "type_flags"})
_FAMILIES = {4: "ip", 6: "ip6"}
_CHANGES_NOTHING = frozenset({"random", "fully-random", "persistent"})


def to_self(what: What, target: Any, scope: Scope, text: str) -> Ways:
    """Return what ``masquerade`` (``snat``) and ``redirect`` (``dnat``) do."""
    target = _checked(target)
    if "addr" in target:
        raise Uninterpreted
    match target.get("port"):
        case {"map": mapped}:
            return _by_port_map(Translate(what, to_self=True), mapped, scope, text)
        case None:
            return ((Translate(what, to_self=True),),)
        case port:
            return ((Translate(what, ports=(span(port, Kind.PORT),), to_self=True),),)


def _checked(target: Any) -> dict[str, Any]:
    if target is None:
        return {}
    if not isinstance(target, dict):
        msg = f"{target!r} is no target of a translation"
        raise Malformed(msg)
    flags = target.get("flags", [])
    words = {flags} if isinstance(flags, str) else {str(flag) for flag in flags} if isinstance(flags, list) else {"?"}
    # "netmap" keeps a part of the address.
    if target.keys() - _KNOWN or words - _CHANGES_NOTHING or "prefix" in str(target.get("type_flags", "")):
        raise Uninterpreted
    return target


def to_address(what: What, target: Any, scope: Scope, text: str) -> Ways:
    """Return what ``dnat`` and ``snat`` do."""
    if isinstance(target, dict) and target.get("family") not in (None, _FAMILIES[scope.version]):
        return FAILS
    target = _checked(target)
    address, port = target.get("addr"), target.get("port")
    match address, port:
        case {"map": mapped}, _:
            return _by_map(what, mapped, scope, text, ports=_ports(port))
        case None, {"map": mapped}:
            return _by_port_map(Translate(what), mapped, scope, text)
        case _, {"map": mapped}:
            return _by_map(what, mapped, scope, text, addresses=_addresses(address, scope))
        case {"concat": [one, other]}, None:
            address, port = one, other
    return _to_constant(what, address, port, scope)


def _to_constant(what: What, address: Any, port: Any, scope: Scope) -> Ways:
    if address is None and port is None:
        msg = "a translation to nothing"
        raise Malformed(msg)
    if address is not None and as_address(address) is not address_kind(scope.version):
        return FAILS
    return ((Translate(what, _addresses(address, scope), _ports(port)),),)


def _addresses(listed: Any, scope: Scope) -> Ranges:
    return () if listed is None else (span(listed, address_kind(scope.version)),)


def _ports(listed: Any) -> Ranges:
    return () if listed is None else (span(listed, Kind.PORT),)


def _by_map(
    what: What,
    mapped: Any,
    scope: Scope,
    text: str,
    *,
    addresses: Ranges = (),
    ports: Ranges = (),
) -> Ways:
    """Return a translation that a map decides; what it does not give, address or port, is given beside it."""
    key, data = _parts(mapped)
    maker = _Target(what, scope, addresses, ports)
    selectors = read_key(key, scope.version)
    if what == "dnat":
        return choose(scope, selectors, data, Use(maker.value, maker.by_collection, maker.by_value, maker.suffix), text)
    try:
        drawn = numbers_only(selectors)
    except Uninterpreted:
        drawn = ()
    if len(drawn) == 1 and isinstance(drawn[0].part, Random):
        return _all_alike(drawn[0].part, scope.names.fixed_elements(scope.container(data)), maker)
    return choose(scope, selectors, data, Use(_no_collection, maker.by_collection, maker.by_value), text)


def _parts(mapped: Any) -> tuple[Any, Any]:
    if isinstance(mapped, dict) and mapped.keys() == {"key", "data"}:
        return mapped["key"], mapped["data"]
    msg = f"{mapped!r} is no map"
    raise Malformed(msg)


def _no_collection(_listed: Any) -> Value:
    """Refuse: maps of new sources, or of ports alone, are no collections of the vocabulary."""
    raise Uninterpreted


class _Target:
    """How a map's values are read as targets; one part is an address, or a port where the address is given."""

    def __init__(self, what: What, scope: Scope, addresses: Ranges, ports: Ranges) -> None:
        self._what = what
        self._kind = address_kind(scope.version)
        self._addresses = addresses
        self._ports = ports
        given = [f"{first}-{last}" for where in (addresses, ports) for first, last in where]
        self.suffix = f" with {', '.join(given)}" if given else ""

    def by_value(self, listed: Any) -> Way:
        parts = value_parts(listed)
        addresses, ports = self._addresses, self._ports
        if not addresses:
            addresses = (span(parts.pop(0), self._kind),)
        if parts and not ports:
            ports = (span(parts.pop(0), Kind.PORT),)
        if parts:
            raise Uninterpreted
        return (Translate(self._what, addresses, ports),)

    def value(self, listed: Any) -> Value:
        """Return the value of a collection, which is one address, or one address and one port."""
        (step,) = self.by_value(listed)
        if not isinstance(step, Translate) or any(a != b for a, b in (*step.addresses, *step.ports)):
            raise Uninterpreted
        return tuple(first for first, _ in (*step.addresses, *step.ports))

    def by_collection(self, name: str, key: Key) -> Step:
        return TranslateBy(name, parts_of(key))


def _all_alike(drawn: Random, elements: Iterable[Any], maker: _Target) -> Ways:
    """Return a new source that is drawn, where each is as likely as another."""
    found = {number(element.key, Kind.NUMBER): maker.by_value(element.value)[0] for element in elements}
    steps = [step for step in found.values() if isinstance(step, Translate)]
    first = steps[0] if steps else Translate("snat")
    targets = [pair for step in steps for pair in step.addresses]
    complete = set(found) == set(range(drawn.offset, drawn.offset + drawn.modulus)) and len(set(targets)) == len(steps)
    if not complete or any(step.ports != first.ports or step.addresses[0][0] != step.addresses[0][1] for step in steps):
        raise Uninterpreted
    return ((Translate(first.what, ranges(targets), first.ports),),)


def _by_port_map(target: Translate, mapped: Any, scope: Scope, text: str) -> Ways:
    """Return a translation whose port a map gives."""
    key, data = _parts(mapped)

    def by_value(listed: Any) -> Way:
        return (structs.replace(target, ports=(span(listed, Kind.PORT),)),)

    use = Use(_no_collection, lambda name, key: TranslateBy(name, parts_of(key)), by_value)
    return choose(scope, read_key(key, scope.version), data, use, text)
