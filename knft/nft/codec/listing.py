"""Decodes a table that libnftables lists (``list table`` with JSON output)."""

from typing import Any

import msgspec
from msgspec import Struct

from knft.nft.codec.elements import entry_from_json, key_from_json
from knft.nft.codec.rule_digests import listed_digest
from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Hook, NamedObject, Target

Json = dict[str, Any]


class TableListing(Struct, frozen=True):
    """The contents of a table in the kernel; without the elements that rules have added.

    ``rule_counts`` maps each chain to its number of rules, ``rule_digests`` to the digest of its rules. ``unreadable``
    are containers with elements that knft never writes. ``dynamic`` are the dynamic sets. ``hooks``
    are the hooks of base chains, None if knft never writes such a hook. ``declarations`` are the sets and maps without
    their elements, as they were listed. ``other_objects`` are flowtables and stateful objects (counters, for example),
    which knft never creates. ``must_be_replaced`` is set for a table that no transaction can repair, such as a dormant
    one.
    """

    rule_counts: dict[str, int]
    containers: frozenset[str]
    contents: Contents
    rule_digests: dict[str, str] = {}
    unreadable: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    hooks: dict[str, Hook | None] = {}
    declarations: dict[NamedObject, Json] = {}
    other_objects: frozenset[NamedObject] = frozenset()
    must_be_replaced: bool = False


def parse_listing(text: str | bytes, table: str = "") -> TableListing:
    """Decode the listing of one table, or of the table ``table`` in the listing of a ruleset.

    Raises ValueError, KeyError or TypeError if it is malformed, or if the table is missing.
    """
    reader = _ListingReader()
    items = [pair for item in msgspec.json.decode(text)["nftables"] for pair in item.items()]
    if table and not any(kind == "table" and found["name"] == table for kind, found in items):
        msg = f"the listing has no table {table!r}"
        raise ValueError(msg)
    for kind, found in items:
        if not table or found.get("table", table) == table:
            reader.add_object(kind, found)
    return TableListing(
        {name: len(rules) for name, rules in reader.chains.items()},
        frozenset(reader.containers),
        reader.contents,
        {name: listed_digest(rules) for name, rules in reader.chains.items()},
        frozenset(reader.unreadable),
        frozenset(reader.dynamic),
        reader.hooks,
        reader.declarations,
        frozenset(reader.other_objects),
    )


class _ListingReader:
    """Collects the objects of a listing."""

    def __init__(self) -> None:
        self.chains: dict[str, list[Json]] = {}
        self.containers: set[str] = set()
        self.contents = Contents.empty()
        self.unreadable: set[str] = set()
        self.dynamic: set[str] = set()
        self.hooks: dict[str, Hook | None] = {}
        self.declarations: dict[NamedObject, Json] = {}
        self.other_objects: set[NamedObject] = set()

    def add_object(self, kind: str, found: Json) -> None:
        """Add one object."""
        match kind:
            case "chain":
                self.chains.setdefault(found["name"], [])
                if "hook" in found:
                    self.hooks[found["name"]] = _hook(found)
            case "rule":
                self.chains.setdefault(found["chain"], []).append(found)
            case "set" | "map":
                self._add_container(kind, found)
            case "metainfo" | "table":
                pass
            case _:
                self.other_objects.add(NamedObject(kind, found["name"]))

    def _add_container(self, kind: str, found: Json) -> None:
        name = found["name"]
        self.containers.add(name)
        declared = {field: value for field, value in found.items() if field != "elem"}
        self.declarations[NamedObject(kind, name)] = declared
        if "timeout" in found.get("flags", ()):
            self.dynamic.add(name)  # Traffic adds its elements.
            return
        try:
            (_read_map if "map" in found else _read_set)(found, self.contents)
        except (ValueError, KeyError, TypeError):
            self.unreadable.add(name)


def _hook(chain: Json) -> Hook | None:
    if chain.get("policy") != "accept":
        return None
    return Hook(chain["type"], chain["hook"], chain["prio"])


def _types(container: Json) -> list[str]:
    """Return the type of each part of a key, "" if only its expression is known.

    A ``typeof`` declaration is listed with its types by libnftables 1.0.6, and with its expressions by 1.1.
    """
    match container["type"]:
        case str(declared):
            return [declared]
        case {"typeof": {"concat": expressions}}:
            return [""] * len(expressions)
        case {"typeof": _}:
            return [""]
        case types:
            return list(types)


def _read_set(container: Json, contents: Contents) -> None:
    types, name = _types(container), container["name"]
    for written in container.get("elem", ()):
        contents.members.add((name, key_from_json(written, types)))


def _read_map(container: Json, contents: Contents) -> None:
    types, name = _types(container), container["name"]
    if container["map"] == "verdict":
        for written, verdict in container.get("elem", ()):
            contents.entries[name, key_from_json(written, types)] = entry_from_json(written, verdict)
        return
    arrays: dict[ArrayName, dict[int, Target | EndpointId]] = {}
    for written, value in container.get("elem", ()):
        *prefix, index = key_from_json(written, types)
        arrays.setdefault(ArrayName(name, tuple(prefix)), {})[int(index)] = _value_from_json(value)
    for array, slots in arrays.items():
        contents.arrays[array] = _with_gaps(slots)


def _value_from_json(value: Any) -> Target | EndpointId:  # noqa: ANN401 - JSON has every type
    """Return the target, or the endpoint ID, which is listed as a packet's priority: ``1:2`` is 0x10002."""
    if isinstance(value, str):
        major, minor = value.split(":")
        return (int(major or "0", 16) << 16) + int(minor or "0", 16)
    address, port = value["concat"]
    return (address, port)


def _with_gaps(slots: dict[int, Target | EndpointId]) -> Array:
    return tuple(slots.get(index) for index in range(max(slots) + 1))
