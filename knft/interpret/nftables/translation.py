"""Converts the NAT statements ``dnat``, ``snat``, ``masquerade`` and ``redirect`` to alternatives."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import structs

from knft.errors import CaptureError
from knft.interpret.alternatives import NEVER, Alternative, Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.lookups import MapUse, look_up, map_value_parts
from knft.interpret.nftables.scope import Scope
from knft.interpret.nftables.selectors import address_kind, read_key
from knft.interpret.nftables.sets_and_maps import Key, MapValue, key_parts, numeric_key
from knft.interpret.nftables.values import ValueKind, address_kind_of, number, span
from knft.interpret.ranges import Ranges, ranges
from knft.interpret.rules import DnatMapLookup, RandomNumber, Step, Translate

NatType = Literal["dnat", "snat"]
_KNOWN_ATTRIBUTES = frozenset({"addr", "port", "family", "flags", "type_flags"})
_FAMILIES = {4: "ip", 6: "ip6"}
_FLAGS_WITHOUT_EFFECT = frozenset({"random", "fully-random", "persistent"})


def translate_to_interface_address(nat: NatType, target: Any, scope: Scope, text: str) -> Alternatives:
    """Return the alternatives of ``masquerade`` (``snat``) and ``redirect`` (``dnat``)."""
    target = _check_target(target)
    if "addr" in target:
        raise NotInterpretedError
    match target.get("port"):
        case {"map": mapped}:
            return _port_from_map(Translate(nat, to_interface_address=True), mapped, scope, text)
        case None:
            return ((Translate(nat, to_interface_address=True),),)
        case port:
            return ((Translate(nat, ports=(span(port, ValueKind.PORT),), to_interface_address=True),),)


def _check_target(target: Any) -> dict[str, Any]:
    if target is None:
        return {}
    if not isinstance(target, dict):
        msg = f"invalid NAT target {target!r}"
        raise CaptureError(msg)
    listed = target.get("flags", [])
    flags = (
        {listed} if isinstance(listed, str) else {str(flag) for flag in listed} if isinstance(listed, list) else {"?"}
    )
    # "netmap" maps prefixes, so that a part of the address stays.
    has_prefix = "prefix" in str(target.get("type_flags", ""))
    if target.keys() - _KNOWN_ATTRIBUTES or flags - _FLAGS_WITHOUT_EFFECT or has_prefix:
        raise NotInterpretedError
    return target


def translate_to_address(nat: NatType, target: Any, scope: Scope, text: str) -> Alternatives:
    """Return the alternatives of ``dnat`` and ``snat``."""
    if isinstance(target, dict) and target.get("family") not in (None, _FAMILIES[scope.version]):
        return NEVER
    target = _check_target(target)
    address, port = target.get("addr"), target.get("port")
    match address, port:
        case {"map": mapped}, _:
            return _from_map(nat, mapped, scope, text, ports=_ports(port))
        case None, {"map": mapped}:
            return _port_from_map(Translate(nat), mapped, scope, text)
        case _, {"map": mapped}:
            return _from_map(nat, mapped, scope, text, addresses=_addresses(address, scope))
        case {"concat": [first, second]}, None:
            address, port = first, second
    return _to_constant(nat, address, port, scope)


def _to_constant(nat: NatType, address: Any, port: Any, scope: Scope) -> Alternatives:
    if address is None and port is None:
        msg = "NAT statement without an address or a port"
        raise CaptureError(msg)
    if address is not None and address_kind_of(address) is not address_kind(scope.version):
        return NEVER
    return ((Translate(nat, _addresses(address, scope), _ports(port)),),)


def _addresses(listed: Any, scope: Scope) -> Ranges:
    return () if listed is None else (span(listed, address_kind(scope.version)),)


def _ports(listed: Any) -> Ranges:
    return () if listed is None else (span(listed, ValueKind.PORT),)


def _from_map(
    nat: NatType,
    mapped: Any,
    scope: Scope,
    text: str,
    *,
    addresses: Ranges = (),
    ports: Ranges = (),
) -> Alternatives:
    """Return a translation to the value of a map; ``addresses`` or ``ports`` are given if the statement has them."""
    key, data = _key_and_data(mapped)
    targets = _MapTargets(nat, scope, addresses, ports)
    selectors = read_key(key, scope.version)
    if nat == "dnat":
        use = MapUse(targets.value, targets.by_collection, targets.by_value, targets.suffix)
        return look_up(scope, selectors, data, use, text)
    try:
        numbers = numeric_key(selectors)
    except NotInterpretedError:
        numbers = ()
    if len(numbers) == 1 and isinstance(numbers[0].part, RandomNumber):
        return _random_source(numbers[0].part, scope.objects.constant_elements(scope.set_or_map(data)), targets)
    return look_up(scope, selectors, data, MapUse(_not_a_collection, targets.by_collection, targets.by_value), text)


def _key_and_data(mapped: Any) -> tuple[Any, Any]:
    if isinstance(mapped, dict) and mapped.keys() == {"key", "data"}:
        return mapped["key"], mapped["data"]
    msg = f"invalid map {mapped!r}"
    raise CaptureError(msg)


def _not_a_collection(_listed: Any) -> MapValue:
    """Raise NotInterpretedError: no step looks up a source address, or a port alone, in a collection."""
    raise NotInterpretedError


class _MapTargets:
    """Reads the values of a map as NAT targets: an address, an address and a port, or only a port."""

    def __init__(self, nat: NatType, scope: Scope, addresses: Ranges, ports: Ranges) -> None:
        self._nat = nat
        self._address_kind = address_kind(scope.version)
        self._addresses = addresses
        self._ports = ports
        given = [f"{first}-{last}" for where in (addresses, ports) for first, last in where]
        self.suffix = f" with {', '.join(given)}" if given else ""

    def by_value(self, listed: Any) -> Alternative:
        parts = map_value_parts(listed)
        addresses, ports = self._addresses, self._ports
        if not addresses:
            addresses = (span(parts.pop(0), self._address_kind),)
        if parts and not ports:
            ports = (span(parts.pop(0), ValueKind.PORT),)
        if parts:
            raise NotInterpretedError
        return (Translate(self._nat, addresses, ports),)

    def value(self, listed: Any) -> MapValue:
        """Return the value of a collection: one address, or one address and one port."""
        (step,) = self.by_value(listed)
        if not isinstance(step, Translate) or any(a != b for a, b in (*step.addresses, *step.ports)):
            raise NotInterpretedError
        return tuple(first for first, _ in (*step.addresses, *step.ports))

    def by_collection(self, name: str, key: Key) -> Step:
        return DnatMapLookup(name, key_parts(key))


def _random_source(random: RandomNumber, elements: Iterable[Any], targets: _MapTargets) -> Alternatives:
    """Return the translation to a random source address; all addresses must be equally likely."""
    by_number = {number(element.key, ValueKind.NUMBER): targets.by_value(element.value)[0] for element in elements}
    steps = [step for step in by_number.values() if isinstance(step, Translate)]
    first = steps[0] if steps else Translate("snat")
    addresses = [pair for step in steps for pair in step.addresses]
    every_number = set(range(random.offset, random.offset + random.modulus))
    is_complete = set(by_number) == every_number and len(set(addresses)) == len(steps)
    if not is_complete or any(
        step.ports != first.ports or step.addresses[0][0] != step.addresses[0][1] for step in steps
    ):
        raise NotInterpretedError
    return ((Translate(first.kind, ranges(addresses), first.ports),),)


def _port_from_map(target: Translate, mapped: Any, scope: Scope, text: str) -> Alternatives:
    """Return a translation to the port that a map has."""
    key, data = _key_and_data(mapped)

    def by_value(listed: Any) -> Alternative:
        return (structs.replace(target, ports=(span(listed, ValueKind.PORT),)),)

    use = MapUse(_not_a_collection, lambda name, key: DnatMapLookup(name, key_parts(key)), by_value)
    return look_up(scope, read_key(key, scope.version), data, use, text)
