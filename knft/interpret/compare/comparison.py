"""Goes through all classes of packets, and says of each what becomes of it in two rule sets."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from operator import attrgetter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from knft.interpret.compare.boxes import Piece, cut, pieces, same, shares
from knft.interpret.compare.classes import Classes, Destination
from knft.interpret.outcomes import Fate, Memory, Origin, Packets, Path
from knft.interpret.ranges import Ranges
from knft.interpret.rules import RuleSet
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.walker import Walker

Progress = Callable[[int, int], None]
"""Told how many classes of destinations are done, and how many there are."""


class Intentions(Protocol):
    """The intended differences, by name, and the two rule sets with any of them taken out."""

    reasons: tuple[str, ...]

    def without(self, reasons: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return left and right without some intended differences."""


class Client(Struct, frozen=True):
    """What is known of a client before: which endpoint it was sent to, and how either side remembers that."""

    endpoint: tuple[int | None, int | None]
    left: frozenset[Memory]
    right: frozenset[Memory]


FRESH = Client((None, None), frozenset(), frozenset())
"""A client that nobody remembers."""


Kind = tuple[Origin, bool, bool, frozenset[Fate], frozenset[Fate]]
"""What differences of one kind are alike in: it is likely that they come of the same."""


def _kind(packets: Packets, client: Client, parts: Sequence[Piece]) -> Kind:
    left, right = (
        frozenset(path.outcome.fate for part in parts for path in side(part))
        for side in (attrgetter("left"), attrgetter("right"))
    )
    return packets.origin, packets.is_local, client is FRESH, left, right


class Difference(Struct, frozen=True):
    """Packets that fare otherwise on the other side; ``reasons`` are the intended differences that it comes of.

    Of several, each is needed. Without any it is not meant.
    """

    destination: Destination
    packets: Packets
    piece: Piece
    client: Client
    reasons: tuple[str, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Whether nobody knows what becomes of them on one of the sides."""
        return self.piece.is_undecided


class Counts(Struct):
    """Classes of packets: parts that either side tells apart."""

    equal: int = 0
    by_intent: int = 0
    different: int = 0
    undecided: int = 0


class Comparison:
    """Two rule sets, left and right, and all that they tell apart; ``counts`` grows while differences are asked for."""

    def __init__(self, left: RuleSet, right: RuleSet, classes: Classes, own: Ranges, intentions: Intentions) -> None:
        """Prepare both; rule sets without intended differences are prepared when one is first needed."""
        self._indexes = Indexes()
        self._own = own
        self._left = self._walker(left)
        self._right = self._walker(right)
        self._classes = classes
        self._intentions = intentions
        self._tried = [frozenset({reason}) for reason in intentions.reasons]
        self._latest: dict[Kind, frozenset[str]] = {}
        self._walkers: dict[frozenset[str], tuple[Walker, Walker]] = {}
        self._sticky: dict[Memory, dict[Client, None]] = {}
        self._asking: list[tuple[Destination, Packets, frozenset[Memory]]] = []
        self.counts = Counts()

    def _walker(self, rules: RuleSet) -> Walker:
        return Walker(rules, self._own, self._indexes)

    def differences(self, progress: Progress = lambda _, __: None) -> Iterator[Difference]:
        """Yield every difference, of clients that nobody remembers first."""
        destinations = self._classes.destinations()
        for number, destination in enumerate(destinations):
            progress(number, len(destinations))
            for packets in self._classes.packets(destination):
                yield from self._compared(destination, packets, FRESH)
        progress(len(destinations), len(destinations))
        for destination, packets, looked_up in self._asking:
            clients = {client: None for memory in looked_up for client in self._sticky.get(memory, ())}
            for client in clients:
                yield from self._compared(destination, packets, client)

    def _compared(self, destination: Destination, packets: Packets, client: Client) -> Iterator[Difference]:
        left = self._left.paths(packets, client.left)
        right = self._right.paths(packets, client.right)
        if client is FRESH:
            self._note_memory(destination, packets, left, right)
        is_equal = same(left, right)
        if is_equal and not any(path.outcome.fate is Fate.UNDECIDED for path in left):
            self.counts.equal += len({path.box for path in left} | {path.box for path in right})
            return
        for piece in pieces(left, right):
            yield from self._judged(destination, packets, client, piece)

    def _judged(self, destination: Destination, packets: Packets, client: Client, piece: Piece) -> Iterator[Difference]:
        if piece.is_undecided:
            self.counts.undecided += 1
            yield Difference(destination, packets, piece, client)
        elif shares(piece.left) == shares(piece.right):
            self.counts.equal += 1
        else:
            yield from self._explained(destination, packets, client, self._existing(packets, client, [piece]))

    def _existing(self, packets: Packets, client: Client, parts: list[Piece]) -> list[Piece]:
        """Return the packets that there are: later ones follow a first one that was let through on both sides."""
        return [there for part in parts for there in self._following(packets, client, part)]

    def _following(self, packets: Packets, client: Client, piece: Piece) -> list[Piece]:
        states = piece.box.states
        if "new" in states or "established" not in states:
            return [piece]
        first = replace(packets, box=piece.box._replace(states=frozenset({"new"})))
        opened = [
            cut(piece, part.box._replace(states=frozenset({"established"})))
            for part in pieces(self._left.paths(first, client.left), self._right.paths(first, client.right))
            if all(any(path.outcome.fate is Fate.DELIVERED for path in side) for side in (part.left, part.right))
        ]
        others = states - {"established"}
        return [*opened, *([cut(piece, piece.box._replace(states=others))] if others else [])]

    def _explained(
        self, destination: Destination, packets: Packets, client: Client, rest: list[Piece]
    ) -> Iterator[Difference]:
        """Yield differences in parts, each with the first reason that accounts for it, or with all that it takes."""
        kind = _kind(packets, client, rest)
        for reasons in self._in_order(self._latest.get(kind, frozenset())):
            equal, rest = self._split(packets, client, rest, reasons)
            if equal:
                self._latest[kind] = reasons
            for part in equal:
                yield self._meant(destination, packets, client, part, reasons)
            if not rest:
                return
        every = frozenset(self._intentions.reasons)
        equal, rest = self._split(packets, client, self._existing(packets, client, rest), every)
        for part in equal:
            reasons = self._needed(packets, client, part)
            if reasons not in self._tried:
                self._tried.append(reasons)
            yield self._meant(destination, packets, client, part, reasons)
        self.counts.different += len(rest)
        for part in rest:
            yield Difference(destination, packets, part, client)

    def _in_order(self, latest: frozenset[str]) -> Iterator[frozenset[str]]:
        """Yield sets of reasons to try: first what a difference like it came of, and parts of that."""
        sizes = range(1, len(latest) + 1)
        first = [frozenset(chosen) for size in sizes for chosen in combinations(sorted(latest), size)]
        yield from first
        yield from (reasons for reasons in self._tried if reasons not in first)

    def _meant(
        self, destination: Destination, packets: Packets, client: Client, piece: Piece, reasons: frozenset[str]
    ) -> Difference:
        self.counts.by_intent += 1
        listed = tuple(reason for reason in self._intentions.reasons if reason in reasons)
        return Difference(destination, packets, piece, client, listed)

    def _needed(self, packets: Packets, client: Client, piece: Piece) -> frozenset[str]:
        """Return as few reasons as account for a difference of which all together do."""
        needed = frozenset(self._intentions.reasons)
        for reason in self._intentions.reasons:
            _, unequal = self._split(packets, client, [piece], needed - {reason})
            if not unequal:
                needed -= {reason}
        return needed

    def _split(
        self, packets: Packets, client: Client, parts: list[Piece], reasons: frozenset[str]
    ) -> tuple[list[Piece], list[Piece]]:
        """Return what fares alike on both sides without some intended differences, and what does not."""
        left, right = self._without(reasons)
        found: tuple[list[Piece], list[Piece]] = ([], [])
        for part in parts:
            there = replace(packets, box=part.box)
            for other in pieces(left.paths(there, client.left), right.paths(there, client.right)):
                found[shares(other.left) != shares(other.right)].append(cut(part, other.box))
        return found

    def _without(self, reasons: frozenset[str]) -> tuple[Walker, Walker]:
        found = self._walkers.get(reasons)
        if found is None:
            left, right = self._intentions.without(reasons)
            found = self._walkers[reasons] = (self._walker(left), self._walker(right))
        return found

    def _note_memory(
        self, destination: Destination, packets: Packets, left: Sequence[Path], right: Sequence[Path]
    ) -> None:
        """Keep what either side will know of clients, and who asks for it, port by port."""
        asked: dict[Ranges, frozenset[Memory]] = {}
        # A client whom one side alone would have sent there fared otherwise before: that is a difference by itself.
        memories: list[dict[tuple[Ranges, int | None, int | None], frozenset[Memory]]] = [{}, {}]
        for known, side in zip(memories, (left, right), strict=True):
            for path in side:
                ports = path.box.ports
                if path.looked_up:
                    asked[ports] = asked.get(ports, frozenset()) | path.looked_up
                if path.outcome.is_translated:
                    endpoint = (ports, path.outcome.address, path.outcome.port)
                    known[endpoint] = known.get(endpoint, frozenset()) | path.remembered
        for ports, looked_up in asked.items():
            narrowed = replace(packets, box=packets.box._replace(ports=ports))
            self._asking.append((destination, narrowed, looked_up))
        for endpoint in memories[0].keys() & memories[1].keys():
            client = Client(endpoint[1:], memories[0][endpoint], memories[1][endpoint])
            for memory in client.left | client.right:
                self._sticky.setdefault(memory, {})[client] = None
