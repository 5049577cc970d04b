"""Resolves the names in a rule: chains, sets and maps, and the collections that are made of sets and maps."""

from collections.abc import Callable, Iterable
from typing import Any

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables import sets_and_maps
from knft.interpret.nftables.listing import ListedRule, ListedSetOrMap, TableId
from knft.interpret.nftables.sets_and_maps import (
    CATCH_ALL,
    Key,
    ListedElement,
    MapValue,
    RuleWrites,
    SetOrMap,
    read_elements,
)
from knft.interpret.nftables.values import ValueKind
from knft.interpret.rules import Collection, Verdict

MAX_ELEMENTS = 4096
"""The most elements of a named set that one rule tests one by one."""


def full_name(family: str, table: str, name: str) -> str:
    """Return the name of a chain, set or map in a ``RuleSet``: with its table, such as ``ip knft services``."""
    return f"{family} {table} {name}"


class NamedObjects:
    """The chains, sets and maps of a listing, and the collections that rules use."""

    def __init__(
        self,
        version: IpVersion,
        chains: Iterable[str],
        containers: dict[str, ListedSetOrMap],
        writes: dict[TableId, RuleWrites],
    ) -> None:
        """Take chains, sets and maps by full name, and what rules write, by table."""
        self.version = version
        self.collections: dict[str, Collection] = {}
        self._chains = {name: name for name in chains}
        self._sets_and_maps = containers
        self._writes = writes
        self._key_kinds: dict[str, tuple[ValueKind, ...]] = {}
        self._used_names: set[str] = set()
        self._not_interpreted: set[str] = set()
        self._catch_all: dict[str, ListedElement | None] = {}
        self._elements: dict[str, tuple[ListedElement, ...] | None] = {}

    def chain_name(self, name: str) -> str:
        """Return the full name of a chain; raise CaptureError if the listing does not have it."""
        if name not in self._chains:
            msg = f'no chain "{name}" in the listing'
            raise CaptureError(msg)
        return self._chains[name]

    def set_or_map(self, table: TableId, name: str) -> SetOrMap:
        """Return a named set or map; raise CaptureError if the listing does not have it."""
        found = full_name(*table, name)
        if found not in self._sets_and_maps:
            msg = f'no set or map "{found}" in the listing'
            raise CaptureError(msg)
        listed, writes = self._sets_and_maps[found], self._writes.get(table, RuleWrites())
        return SetOrMap(
            found, listed, listed.is_dynamic or name in writes.dynamic_sets, name in writes.unknown_sets_and_maps
        )

    def unique_name(self, prefix: str) -> str:
        """Return a new name for an anonymous set; names in nft have no ``#``."""
        count = 1
        while (name := f"{prefix} #{count}") in self._used_names:
            count += 1
        self._used_names.add(name)
        return name

    def add_collection(self, set_or_map: SetOrMap, key: Key, read_value: Callable[[Any], MapValue]) -> str:
        """Return the name of the collection of a set or map, and add it to ``collections`` if it is not there yet."""
        kinds = tuple(part.kind for part in key)
        if set_or_map.has_unknown_elements or self._key_kinds.get(set_or_map.name, kinds) != kinds:
            raise NotInterpretedError
        if set_or_map.name in self._not_interpreted:
            raise NotInterpretedError
        if set_or_map.name not in self.collections:
            self._build_collection(set_or_map, key, read_value)
            self._key_kinds[set_or_map.name] = kinds
        return set_or_map.name

    def _build_collection(self, set_or_map: SetOrMap, key: Key, read_value: Callable[[Any], MapValue]) -> None:
        """Read all elements, only once: many rules look into the same large maps."""
        elements = set_or_map.read_elements()
        self._not_interpreted.add(set_or_map.name)
        self.collections[set_or_map.name] = sets_and_maps.build_collection(set_or_map, elements, key, read_value)
        self._not_interpreted.remove(set_or_map.name)
        self._catch_all[set_or_map.name] = next((it for it in elements if it.key == CATCH_ALL), None)

    def catch_all_element(self, collection: str) -> ListedElement | None:
        """Return the element ``*`` of a map."""
        return self._catch_all[collection]

    def constant_elements(self, set_or_map: SetOrMap) -> tuple[ListedElement, ...]:
        """Return the elements of a set or map that rules do not write; raise NotInterpretedError if they are many."""
        if set_or_map.is_dynamic or set_or_map.has_unknown_elements:
            raise NotInterpretedError
        if isinstance(set_or_map.listed, tuple):
            return set_or_map.listed
        if set_or_map.name not in self._elements:
            elements = set_or_map.read_elements()
            self._elements[set_or_map.name] = elements if len(elements) <= MAX_ELEMENTS else None
        found = self._elements[set_or_map.name]
        if found is None:
            raise NotInterpretedError
        return found


class Scope:
    """The table and the rule in which a name is looked up."""

    def __init__(self, objects: NamedObjects, rule: ListedRule) -> None:
        """Look names up in the rule's table."""
        self.objects = objects
        self.version = objects.version
        self.table: TableId = (rule.family, rule.table)
        self._rule_name = f"{rule.chain} handle {rule.handle}"

    def verdict(self, listed: Any) -> Verdict:
        """Return a verdict; raise CaptureError if the listing does not have the chain of a jump or goto."""
        match listed:
            case {"jump": {"target": str(target)}}:
                return Verdict("jump", self.objects.chain_name(full_name(*self.table, target)))
            case {"goto": {"target": str(target)}}:
                return Verdict("goto", self.objects.chain_name(full_name(*self.table, target)))
            case {"accept": _} | {"drop": _} | {"return": _} | {"continue": _} if len(listed) == 1:
                return Verdict(next(iter(listed)))
        if isinstance(listed, str) or (isinstance(listed, dict) and next(iter(listed), "") not in ("jump", "goto")):
            raise NotInterpretedError
        msg = f"invalid verdict {listed!r}"
        raise CaptureError(msg)

    def set_or_map(self, data: Any) -> SetOrMap:
        """Return the anonymous set or map of a rule, or the one that it names with ``@``."""
        match data:
            case str() if data.startswith("@"):
                return self.objects.set_or_map(self.table, data[1:])
            case {"set": list(elements)}:
                return SetOrMap(self._anonymous_name(), read_elements(elements))
            case {"set": single} if isinstance(single, dict | str | int):
                return SetOrMap(self._anonymous_name(), read_elements([single]))
        if isinstance(data, dict):
            raise NotInterpretedError
        msg = f"invalid set or map {data!r}"
        raise CaptureError(msg)

    def _anonymous_name(self) -> str:
        return self.objects.unique_name(full_name(*self.table, self._rule_name))
