"""A table as libnftables lists it (``list table`` with JSON output)."""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from knft.nft.codec.elements import entry_from_json, key_from_json
from knft.nft.objects import Array, ArrayName, Contents, Target

Json = dict[str, Any]


class Listing(Struct, frozen=True):
    """What the kernel holds: chains and containers by name, and every element that rules did not put there.

    ``chains`` tells how many rules each chain has; what they say is not read back, since each library lists it in its
    own way.
    """

    chains: dict[str, int]
    containers: frozenset[str]
    contents: Contents


def parse_listing(text: str | bytes) -> Listing:
    """Read a listing of one table.

    Raises ValueError, KeyError or TypeError where the document is not one that libnftables makes of knft's table.
    """
    chains: Counter[str] = Counter()
    containers: set[str] = set()
    contents = Contents.empty()
    for item in msgspec.json.decode(text)["nftables"]:
        if "chain" in item:
            chains[item["chain"]["name"]] += 0
        elif "rule" in item:
            chains[item["rule"]["chain"]] += 1
        elif "set" in item:
            containers.add(item["set"]["name"])
            _read_set(item["set"], contents)
        elif "map" in item:
            containers.add(item["map"]["name"])
            _read_map(item["map"], contents)
    return Listing(dict(chains), frozenset(containers), contents)


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
    if "timeout" in container.get("flags", ()):
        return  # Its elements come and go with traffic.
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
