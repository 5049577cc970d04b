"""Transaction: the changes that one sync makes to one table."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, structs

from knft.families import NftFamily
from knft.nft.objects import Chain, Key, Value


class Transaction(Struct, frozen=True):
    """Changes of one table, in the order in which they are applied if they are sent as a whole.

    1. ``new_chains``: new chains that must have their rules before an element or a rule refers to them.
    2. ``chains``: created or rewritten; afterwards they contain exactly these rules.
    3. ``removed`` elements, then ``added`` ones. A verdict needs its chain, and an element's value is replaced by
       removing and adding its key.
    4. ``deferred_removals``: elements that packets in flight may still look up after the change.
    5. ``deleted_chains``, which nothing may refer to any more.

    knft can send the changes as a whole, or in phases: the new-chains phase (1), the endpoint phase (the endpoints of a
    large transaction), the main phase (2, 3 and 5), and then the cleanup phase (4). The endpoint phase and the cleanup
    phase consist of pieces of limited size. Each phase, and each piece, is a Transaction too, and the kernel applies
    each atomically. But a packet that is processed during a commit may read one map before it and another map after
    it. The phases reduce what such a packet can miss: a new verdict refers to a chain that already has its rules, and
    an element of ``deferred_removals`` stays until the main phase is in force and, for some changes, until the kernel
    has finished its packets. docs/design/transaction-phases.md lists what remains.
    """

    family: NftFamily
    table: str
    chains: tuple[Chain, ...] = ()
    new_chains: tuple[Chain, ...] = ()
    removed: Mapping[str, tuple[Key, ...]] = {}
    added: Mapping[str, Mapping[Key, Value]] = {}
    deferred_removals: Mapping[str, tuple[Key, ...]] = {}
    deleted_chains: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the transaction changes nothing."""
        return not (
            self.new_chains
            or self.chains
            or self.removed
            or self.added
            or self.deferred_removals
            or self.deleted_chains
        )

    @property
    def writes_chains(self) -> bool:
        """Whether the transaction creates, rewrites or deletes chains."""
        return bool(self.new_chains or self.chains or self.deleted_chains)

    def new_chains_phase(self, max_rules: int) -> Iterator["Transaction"]:
        """Yield the first phase: new chains, which no packet can reach yet.

        Each transaction has at most ``max_rules`` rules, or one chain. If there are several, the first one creates all
        chains without rules, because rules may refer to any of them.
        """
        pieces = list(_split_by_rules(self.new_chains, max_rules))
        if len(pieces) > 1:
            yield Transaction(self.family, self.table, new_chains=tuple(Chain(chain.name) for chain in self.new_chains))
        for piece in pieces:
            yield Transaction(self.family, self.table, new_chains=piece)

    def split_endpoints(self, size: int, sets: Collection[str] = ()) -> tuple["Transaction", "Transaction"]:
        """Return a transaction that adds what the endpoint phase adds, and the transaction without that.

        These are the elements of endpoint maps, of maps of endpoint IDs, and of ``sets``, that replace no others. No
        packet uses them before the main phase changes verdicts: rules for known clients look up new endpoint IDs, which
        have no clients yet. If there are at most ``size``, the endpoint phase adds nothing.
        """
        if self.added_count <= size:
            return Transaction(self.family, self.table), self
        early: dict[str, Mapping[Key, Value]] = {}
        for name, added in self.added.items():
            if name in sets or isinstance(next(iter(added.values()), None), tuple | int):
                replaced = set(self.removed.get(name, ()))
                early[name] = {key: value for key, value in added.items() if key not in replaced} if replaced else added
        if sum(map(len, early.values())) <= size:
            return Transaction(self.family, self.table), self
        left = {
            name: added if name not in early else _without(added, early[name]) for name, added in self.added.items()
        }
        main = structs.replace(self, added={name: added for name, added in left.items() if added})
        return Transaction(self.family, self.table, added=early), main

    def addition_pieces(self, size: int) -> Iterator["Transaction"]:
        """Yield transactions that add the ``added`` elements, at most ``size`` each."""
        for added in _pieces(self.added, size):
            yield Transaction(self.family, self.table, added=added)

    def main_phase(self) -> "Transaction":
        """Return the main phase: everything but ``new_chains`` and ``deferred_removals``."""
        return structs.replace(self, new_chains=(), deferred_removals={})

    def cleanup_phase(self, size: int) -> list["Transaction"]:
        """Return the transactions of the last phase: the deferred removals, at most ``size`` elements each."""
        elements: dict[str, dict[Key, Value]] = {
            name: dict.fromkeys(keys) for name, keys in self.deferred_removals.items()
        }
        return [
            Transaction(self.family, self.table, removed={name: tuple(keys) for name, keys in removed.items()})
            for removed in _pieces(elements, size)
        ]

    @property
    def added_count(self) -> int:
        """The number of added elements."""
        return sum(len(elements) for elements in self.added.values())

    @property
    def removed_count(self) -> int:
        """The number of removed elements, including the deferred ones."""
        return sum(len(keys) for removed in (self.removed, self.deferred_removals) for keys in removed.values())


def _without(elements: Mapping[Key, Value], others: Mapping[Key, Value]) -> Mapping[Key, Value]:
    if elements is others:
        return {}
    return {key: value for key, value in elements.items() if key not in others}


def _pieces(elements: Mapping[str, Mapping[Key, Value]], size: int) -> Iterator[dict[str, dict[Key, Value]]]:
    """Yield the elements by container, in their order, in groups of at most ``size``."""
    piece: dict[str, dict[Key, Value]] = {}
    room = size
    for name, of_container in elements.items():
        waiting = iter(of_container.items())
        while batch := dict(itertools.islice(waiting, room)):
            piece[name] = batch
            room -= len(batch)
            if not room:
                yield piece
                piece, room = {}, size
    if piece:
        yield piece


def _split_by_rules(chains: Iterable[Chain], max_rules: int) -> Iterator[tuple[Chain, ...]]:
    piece: list[Chain] = []
    for chain in chains:
        if piece and sum(len(each.rules) for each in piece) + len(chain.rules) > max_rules:
            yield tuple(piece)
            piece = []
        piece.append(chain)
    if piece:
        yield tuple(piece)
