"""Goes through all classes of packets, and says of each what becomes of it in two rule sets."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from knft.interpret.compare.boxes import Piece, pieces, same, shares, within
from knft.interpret.compare.classes import Classes, Destination
from knft.interpret.outcomes import Memory, Packets, Path
from knft.interpret.ranges import Ranges
from knft.interpret.rules import RuleSet
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.walker import Walker

Progress = Callable[[int, int], None]
"""Told how many classes of destinations are done, and how many there are."""


class Variant(Struct, frozen=True):
    """The two rule sets with one intended difference taken out of one of them; ``reason`` names it."""

    reason: str
    left: RuleSet
    right: RuleSet


class Client(Struct, frozen=True):
    """What is known of a client before: which endpoint it was sent to, and how either side remembers that."""

    endpoint: tuple[int | None, int | None]
    left: frozenset[Memory]
    right: frozenset[Memory]


FRESH = Client((None, None), frozenset(), frozenset())
"""A client that nobody remembers."""


class Difference(Struct, frozen=True):
    """Packets that fare otherwise on the other side; ``reason`` says which intended difference it is, if any is."""

    destination: Destination
    packets: Packets
    piece: Piece
    client: Client
    reason: str | None

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

    def __init__(
        self, left: RuleSet, right: RuleSet, classes: Classes, own: Ranges, variants: Iterable[Variant]
    ) -> None:
        """Prepare both; variants are prepared when one is first needed."""
        self._indexes = Indexes()
        self._own = own
        self._left = self._walker(left)
        self._right = self._walker(right)
        self._classes = classes
        self._variants = tuple(variants)
        self._walkers: dict[int, Walker] = {}
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
        if is_equal and not any(path.outcome.fate.value == "undecided" for path in left):
            self.counts.equal += len({path.box for path in left} | {path.box for path in right})
            return
        for piece in pieces(left, right):
            yield from self._judged(destination, packets, client, piece)

    def _judged(self, destination: Destination, packets: Packets, client: Client, piece: Piece) -> Iterator[Difference]:
        if piece.is_undecided:
            self.counts.undecided += 1
            yield Difference(destination, packets, piece, client, None)
        elif shares(piece.left) == shares(piece.right):
            self.counts.equal += 1
        else:
            yield from self._explained(destination, packets, client, piece)

    def _explained(
        self, destination: Destination, packets: Packets, client: Client, piece: Piece
    ) -> Iterator[Difference]:
        """Yield a difference in parts, each with the first reason that accounts for it."""
        rest = [piece]
        for number, variant in enumerate(self._variants):
            left, right = self._of_variant(number)
            unexplained: list[Piece] = []
            for part in rest:
                there = replace(packets, box=part.box)
                ways = left.paths(there, client.left), right.paths(there, client.right)
                for piece_of_variant in pieces(*ways):
                    box = piece_of_variant.box
                    cut = Piece(box, tuple(within(part.left, box)), tuple(within(part.right, box)))
                    if shares(piece_of_variant.left) != shares(piece_of_variant.right):
                        unexplained.append(cut)
                        continue
                    self.counts.by_intent += 1
                    yield Difference(destination, packets, cut, client, variant.reason)
            rest = unexplained
            if not rest:
                return
        self.counts.different += len(rest)
        for part in rest:
            yield Difference(destination, packets, part, client, None)

    def _of_variant(self, number: int) -> tuple[Walker, Walker]:
        variant = self._variants[number]
        walkers = []
        for rules in (variant.left, variant.right):
            found = self._walkers.get(id(rules))
            if found is None:
                found = self._walkers[id(rules)] = self._walker(rules)
            walkers.append(found)
        return walkers[0], walkers[1]

    def _note_memory(
        self, destination: Destination, packets: Packets, left: Sequence[Path], right: Sequence[Path]
    ) -> None:
        """Keep what either side will know of clients, and who asks for it, port by port."""
        asked: dict[Ranges, frozenset[Memory]] = {}
        memories: dict[tuple[Ranges, int | None, int | None], list[frozenset[Memory]]] = {}
        for number, side in enumerate((left, right)):
            for path in side:
                ports = path.box.ports
                if path.looked_up:
                    asked[ports] = asked.get(ports, frozenset()) | path.looked_up
                if path.remembered:
                    endpoint = (ports, path.outcome.address, path.outcome.port)
                    memories.setdefault(endpoint, [frozenset(), frozenset()])[number] |= path.remembered
        for ports, looked_up in asked.items():
            narrowed = replace(packets, box=packets.box._replace(ports=ports))
            self._asking.append((destination, narrowed, looked_up))
        for (_, address, port), (of_left, of_right) in memories.items():
            client = Client((address, port), of_left, of_right)
            for memory in of_left | of_right:
                self._sticky.setdefault(memory, {})[client] = None
