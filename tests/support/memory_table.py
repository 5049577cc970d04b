"""A table in memory, for unit tests of the sync: it refuses what the kernel refuses, and needs no namespace."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from knft.errors import KernelError
from knft.families import Family
from knft.nft.codec.listed_table import listed_table
from knft.nft.codec.listing import TableListing, parse_listing
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import Chain, Container, Entry, Key, NamedObject, Table, Value
from knft.nft.transaction import Transaction
from knft.render.names import COMMENT, TABLE

Elements = dict[str, dict[Key, Value]]


class MemoryTable:
    """A TableInterface without a kernel.

    ``transactions`` are the accepted ones. ``on_read``, ``on_commit``, ``on_wait``, ``on_replace`` and
    ``on_delete`` are called before a request is executed, ``after_commit`` after it; each may raise an error.
    """

    def __init__(self, family: Family) -> None:
        self.exists = False
        self.containers: dict[str, Container] = {}
        self.chains: dict[str, Chain] = {}
        self.elements: Elements = {}
        self.transactions: list[Transaction] = []
        self.declarations = self.replacements = self.reads = self.checks = 0
        self.stop_failing()
        self._family = family

    def stop_failing(self) -> None:
        """Remove all hooks."""
        self.on_read: Callable[[], None] = lambda: None
        self.on_commit: Callable[[Transaction], None] = lambda _: None
        self.after_commit: Callable[[Transaction], None] = lambda _: None
        self.on_wait: Callable[[], None] = lambda: None
        self.on_replace: Callable[[Table], None] = lambda _: None
        self.on_delete: Callable[[Sequence[NamedObject]], None] = lambda _: None

    def read(self) -> TableListing | None:
        self.reads += 1
        self.on_read()
        return self.listing() if self.exists else None

    def listing(self) -> TableListing:
        """Return the contents; never fails."""
        containers, chains = tuple(self.containers.values()), tuple(self.chains.values())
        return parse_listing(listed_table(Table(self._family.nft, TABLE, COMMENT, containers, chains, self.elements)))

    def dynamic_elements(self) -> dict[str, dict[Key, Value]]:
        return {name: found for name, found in self.elements.items() if self.containers[name].dynamic_size}

    def ensure_working(self) -> None:
        self.checks += 1

    def declare(self, table: Table) -> None:
        self.declarations += 1
        self.exists = True
        self.containers = {each.name: each for each in table.containers} | self.containers

    def create(self, declared: Table, first: Transaction) -> None:
        self._commit(declared, first)

    def replace(self, table: Table) -> None:
        self.on_replace(table)
        self.replacements += 1
        elements = {name: dict(found) for name, found in table.elements.items()}
        chains = {chain.name: chain for chain in table.chains}
        _check_targets(chains, elements)
        self.containers, self.chains, self.elements = {each.name: each for each in table.containers}, chains, elements

    def wait_for_packets(self) -> None:
        self.on_wait()

    def commit(self, transaction: Transaction) -> None:
        self._commit(None, transaction)

    def _commit(self, declared: Table | None, transaction: Transaction) -> None:
        self.on_commit(transaction)
        if not self.exists and declared is None:
            _refuse("there is no table")
        chains = self.chains | {chain.name: chain for chain in (*transaction.new_chains, *transaction.chains)}
        elements = {name: dict(found) for name, found in self.elements.items()}
        _remove(elements, transaction.removed)
        _add(elements, transaction.added)
        _remove(elements, transaction.deferred_removals)
        _delete_chains(chains, transaction.deleted_chains)
        _check_targets(chains, elements)
        if declared is not None:
            self.declare(declared)
        self.chains, self.elements = chains, elements
        self.transactions.append(transaction)
        self.after_commit(transaction)

    def delete(self, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()) -> None:
        self.on_delete(objects)
        chains = self.chains | {name: Chain(name) for name in flushed_chains}
        _delete_chains(chains, [each.name for each in objects if each.kind == "chain"])
        _check_targets(chains, self.elements)
        self.chains = chains
        for each in objects:
            if each.kind != "chain":
                del self.containers[each.name]
                self.elements.pop(each.name, None)

    def delete_newer_sets(self, kept: Collection[str]) -> bool:
        return not kept


def _remove(elements: Elements, removed: Mapping[str, Iterable[Key]]) -> None:
    for container, keys in removed.items():
        for key in keys:
            if key not in elements.get(container, {}):
                _refuse(f"{container} has no element {key}")
            del elements[container][key]


def _add(elements: Elements, added: Mapping[str, Mapping[Key, Value]]) -> None:
    for container, values in added.items():
        found = elements.setdefault(container, {})
        for key, value in values.items():
            if found.setdefault(key, value) != value:
                _refuse(f"{container} has another element {key}")


def _delete_chains(chains: dict[str, Chain], names: Iterable[str]) -> None:
    for name in names:
        if name not in chains:
            _refuse(f"there is no chain {name}")
        if chains[name].rules:
            _refuse(f"chain {name} has rules")
        del chains[name]


def _check_targets(chains: Mapping[str, Chain], elements: Elements) -> None:
    verdicts = (value.verdict for found in elements.values() for value in found.values() if isinstance(value, Entry))
    targets = {verdict.chain for verdict in verdicts if isinstance(verdict, Goto | Jump)}
    targets.update(target for chain in chains.values() for target in chain.target_chains())
    if not targets <= chains.keys():
        _refuse(f"no such chains: {sorted(targets - chains.keys())}")


def _refuse(reason: str) -> None:
    raise KernelError(reason)
