"""A table as libnftables lists it (``list table`` with JSON output)."""

from typing import Any

import msgspec
from msgspec import Struct

from knft.nft.codec.elements import entry_from_json, key_from_json, memory_from_json
from knft.nft.codec.listed_rules import listed_rules
from knft.nft.objects import Array, ArrayName, Contents, Hook, Key, Target, Value

Json = dict[str, Any]


class Listing(Struct, frozen=True):
    """What the kernel holds: chains and containers by name, and every element that rules did not put there.

    ``chains`` tells how many rules each chain has, and ``rules`` their digest. ``unreadable`` are the containers that
    hold something that knft never writes, ``dynamic`` those that rules fill, as they were listed. ``hooks`` tells
    where base chains are attached, None where in a way that knft never writes. It is ``unsuitable`` where the table has
    to be replaced for what it is itself, as one that is switched off.
    """

    chains: dict[str, int]
    containers: frozenset[str]
    contents: Contents
    rules: dict[str, str] = {}
    unreadable: frozenset[str] = frozenset()
    dynamic: dict[str, Json] = {}
    hooks: dict[str, Hook | None] = {}
    unsuitable: bool = False

    def memories(self) -> dict[str, dict[Key, Value]]:
        """Return what rules have put into dynamic sets."""
        found: dict[str, dict[Key, Value]] = {}
        for name, container in self.dynamic.items():
            read = (memory_from_json(written, _types(container)) for written in container.get("elem", ()))
            found[name] = dict(memory for memory in read if memory is not None)
        return found


def parse_listing(text: str | bytes) -> Listing:
    """Read a listing of one table; raise ValueError, KeyError or TypeError where it is none."""
    reader = _Reader()
    for item in msgspec.json.decode(text)["nftables"]:
        for kind, found in item.items():
            reader.take(kind, found)
    return Listing(
        {name: len(rules) for name, rules in reader.chains.items()},
        frozenset(reader.containers),
        reader.contents,
        {name: listed_rules(rules) for name, rules in reader.chains.items()},
        frozenset(reader.unreadable),
        reader.dynamic,
        reader.hooks,
    )


class _Reader:
    """What has been read of a listing so far."""

    def __init__(self) -> None:
        self.chains: dict[str, list[Json]] = {}
        self.containers: set[str] = set()
        self.contents = Contents.empty()
        self.unreadable: set[str] = set()
        self.dynamic: dict[str, Json] = {}
        self.hooks: dict[str, Hook | None] = {}

    def take(self, kind: str, found: Json) -> None:
        """Take in one object."""
        match kind:
            case "chain":
                self.chains.setdefault(found["name"], [])
                if "hook" in found:
                    self.hooks[found["name"]] = _hook(found)
            case "rule":
                self.chains.setdefault(found["chain"], []).append(found)
            case "set" | "map":
                self._take_container(found)

    def _take_container(self, found: Json) -> None:
        name = found["name"]
        self.containers.add(name)
        if "timeout" in found.get("flags", ()):
            self.dynamic[name] = found  # Its elements come and go with traffic.
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
