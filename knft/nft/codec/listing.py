"""A table as libnftables lists it (``list table`` with JSON output)."""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from knft.nft.codec.elements import entry_from_json, key_from_json, memory_from_json
from knft.nft.objects import Array, ArrayName, Contents, Key, Target, Value

Json = dict[str, Any]


class Listing(Struct, frozen=True):
    """What the kernel holds: chains and containers by name, and every element that rules did not put there.

    ``chains`` tells how many rules each chain has; what they say is not read back, since each library lists it in its
    own way. ``unreadable`` are the containers that hold something that knft never writes, ``dynamic`` those that rules
    fill, as they were listed.
    """

    chains: dict[str, int]
    containers: frozenset[str]
    contents: Contents
    unreadable: frozenset[str] = frozenset()
    dynamic: dict[str, Json] = {}

    def memories(self) -> dict[str, dict[Key, Value]]:
        """Return what rules have put into dynamic sets."""
        found: dict[str, dict[Key, Value]] = {}
        for name, container in self.dynamic.items():
            read = (memory_from_json(written, _types(container)) for written in container.get("elem", ()))
            found[name] = dict(memory for memory in read if memory is not None)
        return found


def parse_listing(text: str | bytes) -> Listing:
    """Read a listing of one table; raise ValueError, KeyError or TypeError where it is none."""
    chains: Counter[str] = Counter()
    containers: set[str] = set()
    unreadable: set[str] = set()
    dynamic: dict[str, Json] = {}
    contents = Contents.empty()
    for item in msgspec.json.decode(text)["nftables"]:
        if "chain" in item:
            chains[item["chain"]["name"]] += 0
        elif "rule" in item:
            chains[item["rule"]["chain"]] += 1
        elif found := item.get("set", item.get("map")):
            containers.add(found["name"])
            if "timeout" in found.get("flags", ()):
                dynamic[found["name"]] = found  # Its elements come and go with traffic.
                continue
            try:
                (_read_set if "set" in item else _read_map)(found, contents)
            except (ValueError, KeyError, TypeError):
                unreadable.add(found["name"])
    return Listing(dict(chains), frozenset(containers), contents, frozenset(unreadable), dynamic)


def _types(container: Json) -> list[str]:
    """Return the type of each part of a key; empty where it is only known by the expression that it is declared with.

    What is declared with ``typeof`` is listed with its types by libnftables 1.0.6, and with its expressions by 1.1.
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
    arrays: dict[ArrayName, dict[int, Target]] = {}
    for written, value in container.get("elem", ()):
        *prefix, index = key_from_json(written, types)
        address, port = value["concat"]
        arrays.setdefault(ArrayName(name, tuple(prefix)), {})[int(index)] = (address, port)
    for array, slots in arrays.items():
        contents.arrays[array] = _with_gaps(slots)


def _with_gaps(slots: dict[int, Target]) -> Array:
    return tuple(slots.get(index) for index in range(max(slots) + 1))
