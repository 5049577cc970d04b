"""What a rule's words refer to: chains, containers, and the collections that are made of them so far."""

from collections.abc import Callable, Iterable
from typing import Any

from knft.interpret.nftables import containers
from knft.interpret.nftables.containers import CATCH_ALL, Container, Key, Listed, Value, Written, read_elements
from knft.interpret.nftables.document import ListedContainer, ListedRule, TableId
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.values import Kind
from knft.interpret.rules import Collection, IpVersion, Verdict

MOST_ELEMENTS = 4096
"""How many elements of a named set are looked at one by one, for a test that is no lookup here."""


def full_name(family: str, table: str, name: str) -> str:
    """Return what a chain or a container of a table is called in a rule set."""
    return f"{family} {table} {name}"


class Names:
    """Everything that rules can name, and the collections that they have asked for."""

    def __init__(
        self,
        version: IpVersion,
        chains: Iterable[str],
        held: dict[str, ListedContainer],
        written: dict[TableId, Written],
    ) -> None:
        """Take what is listed, by its full name; ``written`` is by table."""
        self.version = version
        self.collections: dict[str, Collection] = {}
        self._chains = {name: name for name in chains}
        self._held = held
        self._written = written
        self._kinds: dict[str, tuple[Kind, ...]] = {}
        self._given: set[str] = set()
        self._refused: set[str] = set()
        self._others: dict[str, Listed | None] = {}
        self._few: dict[str, tuple[Listed, ...] | None] = {}

    def chain(self, name: str) -> str:
        """Return the full name of a chain that is there."""
        if name not in self._chains:
            msg = f"there is no chain {name}"
            raise Malformed(msg)
        return self._chains[name]

    def container(self, table: TableId, name: str) -> Container:
        """Return a named set or map."""
        found = full_name(*table, name)
        if found not in self._held:
            msg = f"there is no set or map {found}"
            raise Malformed(msg)
        held, written = self._held[found], self._written.get(table, Written())
        return Container(found, held, held.dynamic or name in written.remembering, name in written.blurred)

    def fresh(self, prefix: str) -> str:
        """Return a name that no set can have, as nft's own have no ``#``, and that is given once."""
        count = 1
        while (name := f"{prefix} #{count}") in self._given:
            count += 1
        self._given.add(name)
        return name

    def collected(self, container: Container, key: Key, read_value: Callable[[Any], Value]) -> str:
        """Return the name of the collection that a container is, for a key of these kinds."""
        kinds = tuple(part.kind for part in key)
        if container.blurred or self._kinds.get(container.name, kinds) != kinds:
            raise Uninterpreted
        if container.name in self._refused:
            raise Uninterpreted
        if container.name not in self.collections:
            self._collect(container, key, read_value)
            self._kinds[container.name] = kinds
        return container.name

    def _collect(self, container: Container, key: Key, read_value: Callable[[Any], Value]) -> None:
        """Read all elements, once: many rules name the same large maps."""
        elements = container.elements()
        self._refused.add(container.name)
        self.collections[container.name] = containers.collection(container, elements, key, read_value)
        self._refused.remove(container.name)
        self._others[container.name] = next((it for it in elements if it.key == CATCH_ALL), None)

    def catch_all(self, collection: str) -> Listed | None:
        """Return a map's element for all other keys."""
        return self._others[collection]

    def fixed_elements(self, container: Container) -> tuple[Listed, ...]:
        """Return what a container holds for good, where that is little enough to be said one by one."""
        if container.remembers or container.blurred:
            raise Uninterpreted
        if isinstance(container.held, tuple):
            return container.held
        if container.name not in self._few:
            elements = container.elements()
            self._few[container.name] = elements if len(elements) <= MOST_ELEMENTS else None
        found = self._few[container.name]
        if found is None:
            raise Uninterpreted
        return found


class Scope:
    """Where one rule stands."""

    def __init__(self, names: Names, rule: ListedRule) -> None:
        """Look names up in the rule's table."""
        self.names = names
        self.version = names.version
        self.table: TableId = (rule.family, rule.table)
        self._owner = f"{rule.chain} handle {rule.handle}"

    def verdict(self, listed: Any) -> Verdict:
        """Return a verdict; the chain that it names is there."""
        match listed:
            case {"jump": {"target": str(target)}}:
                return Verdict("jump", self.names.chain(full_name(*self.table, target)))
            case {"goto": {"target": str(target)}}:
                return Verdict("goto", self.names.chain(full_name(*self.table, target)))
            case {"accept": _} | {"drop": _} | {"return": _} | {"continue": _} if len(listed) == 1:
                return Verdict(next(iter(listed)))
        if isinstance(listed, str) or (isinstance(listed, dict) and next(iter(listed), "") not in ("jump", "goto")):
            raise Uninterpreted
        msg = f"{listed!r} is no verdict"
        raise Malformed(msg)

    def container(self, data: Any) -> Container:
        """Return the set or the map that a rule holds, or names with ``@``."""
        match data:
            case str() if data.startswith("@"):
                return self.names.container(self.table, data[1:])
            case {"set": list(elements)}:
                return Container(self._anonymous(), read_elements(elements))
            case {"set": single} if isinstance(single, dict | str | int):
                return Container(self._anonymous(), read_elements([single]))
        if isinstance(data, dict):
            raise Uninterpreted
        msg = f"{data!r} is no set or map"
        raise Malformed(msg)

    def _anonymous(self) -> str:
        return self.names.fresh(full_name(*self.table, self._owner))
