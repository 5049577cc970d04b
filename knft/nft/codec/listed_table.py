"""Encodes a table as libnftables would list it, so that ``interpret`` can read a table that is not loaded."""

from collections.abc import Iterator
from typing import Any

import msgspec

from knft.nft.codec.elements import element_json
from knft.nft.codec.tables import chain_json, rule_json
from knft.nft.objects import Container, Key, Table, Value

Json = dict[str, Any]

_TYPES = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}


def listed_table(table: Table) -> bytes:
    """Return a whole table as ``nft -j list table`` of 1.0.6 prints it, without handles."""
    return msgspec.json.encode({"nftables": list(_objects(table))})


def _objects(table: Table) -> Iterator[Json]:
    where = {"family": table.family, "table": table.name}
    yield {"metainfo": {"json_schema_version": 1}}
    yield {"table": {"family": table.family, "name": table.name}}
    for container in table.containers:
        elements = table.elements.get(container.name, {})
        listed: Json = {**where, "name": container.name, **_declaration(container)}
        if elements:
            listed["elem"] = [listed_element(key, value) for key, value in elements.items()]
        yield {"map" if container.is_map else "set": listed}
    for chain in table.chains:
        yield {"chain": where | chain_json(chain)}
    for chain in table.chains:
        for rule in chain.rules:
            yield {"rule": {**where, "chain": chain.name, **rule_json(rule)}}


def listed_element(key: Key, value: Value) -> Any:  # noqa: ANN401 - JSON has every type
    """Return an element as libnftables lists it."""
    if isinstance(value, int):  # libnftables accepts a number, and lists it as a packet's priority.
        return [{"concat": key}, f"{value >> 16:x}:{value & 0xFFFF:x}"]
    return element_json(key, value)


def _declaration(container: Container) -> Json:
    declared: Json = {"type": _types(container.key)}
    if container.is_map:
        data = _types(container.data)
        declared["map"] = data if isinstance(data, str) else " . ".join(data)
    if container.dynamic_size:
        declared |= {"size": container.dynamic_size, "flags": ["timeout"]}
    if container.interval:
        declared["flags"] = ["interval"]
    if container.has_counters:
        declared["stmt"] = [{"counter": None}]
    return declared


def _types(declared: str) -> str | list[str]:
    parts = [_type(part) for part in declared.split(" . ")]
    return parts[0] if len(parts) == 1 else parts


def _type(part: str) -> str:
    """Return a type, or the type of an expression of a ``typeof`` declaration."""
    words = part.split()
    if len(words) == 1:
        return part
    if words[0] == "numgen":
        return "integer"
    if words == ["meta", "priority"]:
        return "classid"
    return _TYPES.get(words[0], "inet_service")


def is_declared_as(listed: Json, container: Container) -> bool:
    """Tell whether a listed set or map has the types and flags of ``container``.

    Types that a newer libnftables lists as expressions count as equal; since Linux 6.2, the kernel compares them when
    the container is declared again. The size of a dynamic set may differ.
    """
    declared = _declaration(container)
    if any(_differ(listed.get(part), declared.get(part)) for part in ("type", "map")):
        return False
    if container.has_counters and not listed.get("stmt"):
        return False
    flags = listed.get("flags", [])
    listed_flags = {flags} if isinstance(flags, str) else set(flags)
    size_is_right = ("size" in listed) <= bool(container.dynamic_size)
    return size_is_right and listed_flags - {"dynamic"} == set(declared.get("flags", []))


def _differ(listed: Any, declared: Any) -> bool:  # noqa: ANN401 - JSON has every type
    if isinstance(listed, dict) or (isinstance(listed, list) and isinstance(declared, str)):
        return False
    return bool(listed != declared)
