"""Goes through all classes of packets, and says of each what becomes of it in two rule sets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from knft.interpret.compare.boxes import Piece, a_difference, by_ports, pieces, same, shares, within
from knft.interpret.compare.classes import Classes, Destination
from knft.interpret.outcomes import Box, Fate, Memory, Packets, Path
from knft.interpret.ranges import PORTS, Ranges, common, contains, only, ranges, without
from knft.interpret.rules import RuleSet
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.journal import Question
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
    """Packets that fare otherwise on the other side; ``reason`` says which intended difference it is, if any is.

    ``ways`` are all ways of such packets on either side; ``located`` are those packets that differ, None where nobody
    has looked for them yet.
    """

    destination: Destination
    packets: Packets
    client: Client
    reason: str | None
    ways: tuple[Sequence[Path], Sequence[Path]]
    located: Piece | None = None

    @property
    def piece(self) -> Piece:
        """Some of the packets that differ, alike among each other on either side."""
        found = a_difference(*self.ways) if self.located is None else self.located
        ports = common(found.box.ports, self.packets.box.ports) or self.packets.box.ports
        return found._replace(box=found.box._replace(ports=ports))

    @property
    def is_undecided(self) -> bool:
        """Whether nobody knows what becomes of them on one of the sides."""
        return self.located is not None and self.located.is_undecided


class Case(NamedTuple):
    """Packets of one class, of clients of whom one thing is known."""

    destination: Destination
    packets: Packets
    client: Client

    def difference(self, piece: Piece, reason: str | None) -> Difference:
        """Return a difference between some of the packets."""
        ways = piece.left, piece.right
        return Difference(self.destination, self.packets, self.client, reason, ways, piece)


class Counts(Struct):
    """Classes of packets: parts that either side tells apart."""

    equal: int = 0
    by_intent: int = 0
    different: int = 0
    undecided: int = 0

    def add(self, other: "Counts") -> None:
        """Count what another counts as well."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: "Counts") -> "Counts":
        """Return what has been counted since."""
        return Counts(*(getattr(self, name) - getattr(before, name) for name in self.__struct_fields__))


class Known(NamedTuple):
    """What was found for some ports of a destination, and what has to be so of another for the same to hold."""

    ports: Ranges
    questions: tuple[tuple[Question, bool], ...]
    differences: tuple[Difference, ...]
    counts: Counts

    def holds(self, destination: Destination, packets: Packets, mentioned: Ranges) -> bool:
        """Tell whether it holds for other packets; ``mentioned`` are ports that rules speak of, whoever is dialled."""
        ports, address = packets.box.ports, destination.address
        others = ranges((*without(ports, self.ports), *without(self.ports, ports)))
        if others and (common(others, mentioned) or not all(self._is_of_all_ports(item) for item in self.differences)):
            return False
        return all(question.answer(address, ports) is answer for question, answer in self.questions)

    def _is_of_all_ports(self, difference: Difference) -> bool:
        return difference.located is None or difference.located.box.ports == self.ports

    def again(self, difference: Difference, destination: Destination, packets: Packets) -> Difference:
        """Return one of its differences for others."""
        located = difference.located
        if located is not None and located.box.ports == self.ports:
            located = located._replace(box=located.box._replace(ports=packets.box.ports))
        return replace(difference, destination=destination, packets=packets, located=located)


class Comparison:
    """Two rule sets, left and right, and all that they tell apart; ``counts`` grows while differences are asked for."""

    def __init__(
        self, left: RuleSet, right: RuleSet, classes: Classes, own: Ranges, variants: Iterable[Variant]
    ) -> None:
        """Prepare both; variants are prepared when one is first needed."""
        self._indexes = Indexes()
        self._own = own
        self._bound = ranges((*left.bound, *right.bound))
        self._known: dict[tuple[bool, bool, int, Box], list[Known]] = {}
        self._left = self._walker(left)
        self._right = self._walker(right)
        self._classes = classes
        self._ports = classes.mentioned_ports
        self._variants = tuple(variants)
        self._orders: dict[tuple[str, int, bool], list[int]] = {}
        self._walkers: dict[int, Walker] = {id(left): self._left, id(right): self._right}
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
                yield from self._of_new_clients(destination, packets)
        progress(len(destinations), len(destinations))
        for destination, packets, looked_up in self._asking:
            clients = {client: None for memory in looked_up for client in self._sticky.get(memory, ())}
            for client in clients:
                yield from self._compared(destination, packets, client)

    def _of_new_clients(self, destination: Destination, packets: Packets) -> Iterator[Difference]:
        """Yield the differences of clients that nobody remembers, as for another destination where that is alike."""
        if not destination.is_plain:
            yield from self._compared(destination, packets, FRESH)
            return
        is_bound = contains(self._bound, destination.address)
        everywhere = packets.box._replace(ports=PORTS)
        alike = self._known.setdefault((destination.is_local, is_bound, packets.protocol, everywhere), [])
        known = next((item for item in alike if item.holds(destination, packets, self._ports)), None)
        if known is not None:
            self.counts.add(known.counts)
            yield from (known.again(difference, destination, packets) for difference in known.differences)
            return
        journal, before, asking = self._indexes.journal, copy(self.counts), len(self._asking)
        journal.begin()
        left, right = self._ways(packets, FRESH)
        self._note_memory(destination, packets, left, right)
        if journal.is_particular:
            journal.end()
            yield from self._port_by_port(destination, packets, left, right)
            return
        differences = tuple(self._differing(Case(destination, packets, FRESH), left, right))
        questions = journal.end()
        if questions is not None and len(self._asking) == asking:
            alike.append(Known(packets.box.ports, questions, differences, self.counts.since(before)))
        yield from differences

    def _port_by_port(
        self, destination: Destination, packets: Packets, left: Sequence[Path], right: Sequence[Path]
    ) -> Iterator[Difference]:
        """Yield the differences of packets to a destination of which something particular is said of some ports."""
        for ports, of_left, of_right in by_ports(left, right):
            there = replace(packets, box=packets.box._replace(ports=ports))
            if _is_settled(of_left, of_right):
                self._count_equal(of_left, of_right)
            elif only(ports) is None and ports != packets.box.ports:
                yield from self._of_new_clients(destination, there)
            else:
                yield from self._judged(Case(destination, there, FRESH), of_left, of_right)

    def _compared(self, destination: Destination, packets: Packets, client: Client) -> Iterator[Difference]:
        left, right = self._ways(packets, client)
        if client is FRESH:
            self._note_memory(destination, packets, left, right)
        yield from self._differing(Case(destination, packets, client), left, right)

    def _ways(self, packets: Packets, client: Client) -> tuple[list[Path], list[Path]]:
        return self._left.paths(packets, client.left), self._right.paths(packets, client.right)

    def _differing(self, case: Case, left: Sequence[Path], right: Sequence[Path]) -> Iterator[Difference]:
        if _is_settled(left, right):
            self._count_equal(left, right)
            return
        for ports, of_left, of_right in by_ports(left, right):
            if _is_settled(of_left, of_right):
                self._count_equal(of_left, of_right)
            else:
                packets = replace(case.packets, box=case.packets.box._replace(ports=ports))
                yield from self._judged(case._replace(packets=packets), of_left, of_right)

    def _count_equal(self, left: Sequence[Path], right: Sequence[Path]) -> None:
        self.counts.equal += len({path.box for path in left} | {path.box for path in right})

    def _judged(self, case: Case, left: Sequence[Path], right: Sequence[Path]) -> Iterator[Difference]:
        usual = self._usual_reason(case, left, right)
        if usual is not None:
            self._count_equal(left, right)
            self.counts.equal -= 1
            self.counts.by_intent += 1
            yield Difference(case.destination, case.packets, case.client, usual, (left, right))
            return
        differing = []
        for piece in pieces(left, right):
            if piece.is_undecided:
                self.counts.undecided += 1
                yield case.difference(piece, None)
            elif shares(piece.left) == shares(piece.right):
                self.counts.equal += 1
            else:
                differing.append(piece)
        if differing:
            yield from self._explained(case, differing, (left, right))

    def _usual_reason(self, case: Case, left: Sequence[Path], right: Sequence[Path]) -> str | None:
        """Return the reason of the last such differences where it accounts for all of these as well."""
        order = self._order(case)
        if not order or any(path.outcome.fate is Fate.UNDECIDED for path in (*left, *right)):
            return None
        reason = self._variants[order[0]].reason
        return reason if _is_settled(*self._ways_of_variant(order[0], case, (left, right))) else None

    def _order(self, case: Case) -> list[int]:
        """Return the variants in the order in which they are tried: first the last that was right, all of them last."""
        kind = case.packets.origin, case.packets.protocol, only(case.packets.box.ports) is None
        return self._orders.setdefault(kind, list(range(len(self._variants))))

    def _explained(
        self, case: Case, differing: list[Piece], ways: tuple[Sequence[Path], Sequence[Path]]
    ) -> Iterator[Difference]:
        """Yield differences in parts, each with the first reason that accounts for it."""
        order = self._order(case)
        for number in tuple(order):
            unexplained: list[Piece] = []
            left, right = self._ways_of_variant(number, case, ways)
            for piece in differing:
                for part, is_equal in _parts(piece, left, right):
                    if not is_equal:
                        unexplained.append(part)
                        continue
                    self.counts.by_intent += 1
                    yield case.difference(part, self._variants[number].reason)
            if len(unexplained) < len(differing) and number != order[-1]:
                # Differences of one kind nearly always have the same reason; the last variant is all of them at once.
                order.remove(number)
                order.insert(0, number)
            differing = unexplained
            if not differing:
                return
        self.counts.different += len(differing)
        for piece in differing:
            yield case.difference(piece, None)

    def _ways_of_variant(
        self, number: int, case: Case, ways: tuple[Sequence[Path], Sequence[Path]]
    ) -> Iterator[Sequence[Path]]:
        """Yield the ways of both sides of a variant; those of a side that is as it was are known."""
        variant = self._variants[number]
        sides = (variant.left, self._left, case.client.left), (variant.right, self._right, case.client.right)
        for known, (rules, original, memory) in zip(ways, sides, strict=True):
            walker = self._walkers.get(id(rules))
            if walker is None:
                walker = self._walkers[id(rules)] = self._walker(rules)
            yield known if walker is original else walker.paths(case.packets, memory)

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


def _is_settled(left: Sequence[Path], right: Sequence[Path]) -> bool:
    """Tell whether both sides do the same, and know what they do."""
    return same(left, right) and not any(path.outcome.fate is Fate.UNDECIDED for path in left)


def _parts(piece: Piece, left: Sequence[Path], right: Sequence[Path]) -> Iterator[tuple[Piece, bool]]:
    """Yield a piece in parts, with whether other ways treat each alike on both sides."""
    cut = within(left, piece.box), within(right, piece.box)
    if same(*cut):
        yield piece, True
        return
    for part in pieces(*cut):
        ways = tuple(within(piece.left, part.box)), tuple(within(piece.right, part.box))
        yield Piece(part.box, *ways), shares(part.left) == shares(part.right)
