"""One packet's way through a rule set: the rules that it meets, what can become of it, and why."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from knft.interpret import why
from knft.interpret.compare import words
from knft.interpret.compare.boxes import Piece, pieces
from knft.interpret.deeds import in_words
from knft.interpret.outcomes import Box, Fate, Memory, Outcome, Packets, Passed, Path
from knft.interpret.ranges import Ranges
from knft.interpret.rules import Chance, Element, Field, InSet, RuleSet
from knft.interpret.walk.recording import RecordingWalker


class Met(Struct, frozen=True):
    """A rule that the packet meets and that does something; ``line`` is 0 where the rules have no lines.

    ``does`` are such as "chance 1/3", "jump to X", "mark 0x4000", "to 10.244.1.11:8080", "masquerade", "drop".
    """

    chain: str
    rule: str
    line: int
    does: tuple[str, ...]


class End(Struct, frozen=True):
    """What becomes of some of the packets: ``share`` is a fraction such as ``1/3``, ``percent`` the same for people.

    ``endpoint`` is empty where nobody translates the packet; ``source`` is what the endpoint sees: kept, masqueraded,
    frontend, or an address; ``why`` says why it is refused, dropped, undecided or masqueraded; ``seconds`` is for how
    long the client is sent to the same endpoint, null without affinity. ``rules`` are met on this way alone, after
    those of the ``Way``.
    """

    share: str
    percent: float
    fate: Literal["delivered", "rejected", "dropped", "undecided"]
    endpoint: str
    source: str
    why: str
    seconds: int | None
    rules: tuple[Met, ...]


class Way(Struct, frozen=True):
    """The packets that rules treat alike, which are all but where ``when`` says otherwise; their shares sum to one.

    ``when`` names what was not said of the packet and decides: an interface, a source port. ``rules`` are met by all
    of them before those of the ``ends``, and ``then`` after those.
    """

    when: tuple[str, ...]
    rules: tuple[Met, ...]
    ends: tuple[End, ...]
    then: tuple[Met, ...]


class Trace(Struct, frozen=True):
    """A packet that opens a connection, and what a rule set does to it.

    ``service`` is whose frontend is dialled, null where it is nobody's; ``sender`` is ``node`` for a process of the
    node itself; ``interface`` is empty where none was said; ``client`` is ``new``, or what affinity remembers of it.
    ``version`` is that of this form.
    """

    rule_set: str
    family: str
    source: str
    sender: Literal["network", "node"]
    interface: str
    destination: str
    service: str | None
    client: str
    ways: tuple[Way, ...]
    remarks: tuple[str, ...] = ()
    version: int = 1


class Client(Struct, frozen=True):
    """What is remembered of a client: in words, and as a rule set's collections do."""

    said: str = "new"
    memory: frozenset[Memory] = frozenset()


NEW = Client()


class Tracer:
    """A rule set that packets are traced through; ``own`` are the node's addresses."""

    def __init__(self, rules: RuleSet, own: Ranges) -> None:
        """Prepare the rules."""
        self._rules = rules
        self._version = rules.version
        self._walker = RecordingWalker(rules, own)

    def ways(self, packets: Packets, client: Client = NEW) -> tuple[Way, ...]:
        """Return all ways of a packet: several where what its box leaves open decides."""
        is_cluster_ip = why.is_cluster_ip(self._rules, packets.destination)
        found = pieces(self._walker.paths(packets, client.memory), ())
        return tuple(self._way(packets.box, piece, to_cluster_ip=is_cluster_ip) for piece in found)

    def remembered(self, packets: Packets, address: int, port: int) -> Client | None:
        """Return a client that was sent to an endpoint, None where nobody would remember that."""
        sent = (path for path in self._walker.paths(packets) if path.outcome[1:3] == (address, port))
        memory = frozenset[Memory]().union(*(path.remembered for path in sent))
        return Client(f"was sent to {words.socket(self._version, address, port)}", memory) if memory else None

    def known(self, packets: Packets, source: int) -> Client:
        """Return what the rule set's own collections hold of a client, as far as it decides on the packet."""
        held = frozenset(_held(self._rules, source))
        asked = frozenset[Memory]().union(*(path.looked_up for path in self._walker.paths(packets)))
        return Client("is remembered", held & asked) if held & asked else NEW

    def _way(self, asked: Box, piece: Piece, *, to_cluster_ip: bool) -> Way:
        trails = [_trail(path) for path in piece.left]
        shared = _shared(trails)
        last = _shared([trail[shared:][::-1] for trail in trails]) if len(trails) > 1 else 0
        ends: dict[tuple[Outcome, str, tuple[Met, ...]], Fraction] = {}
        for path, passed in zip(piece.left, trails, strict=True):
            reason = _reason(path.outcome, passed, to_cluster_ip=to_cluster_ip)
            end = path.outcome, reason, tuple(map(self._met, passed[shared : len(passed) - last]))
            ends[end] = ends.get(end, Fraction()) + path.share
        return Way(
            when=tuple(_when(asked, piece.box)),
            rules=tuple(map(self._met, trails[0][:shared])),
            ends=tuple(self._end(*end, share) for end, share in sorted(ends.items(), key=lambda item: repr(item[0]))),
            then=tuple(map(self._met, trails[0][len(trails[0]) - last :])),
        )

    def _end(self, outcome: Outcome, reason: str, rules: tuple[Met, ...], share: Fraction) -> End:
        return End(
            share=str(share),
            percent=round(float(share * 100), 2),
            fate=outcome.fate.value,
            endpoint=words.endpoint(self._version, outcome) if outcome.is_translated else "",
            source=words.source(self._version, outcome.source),
            why=reason,
            seconds=outcome.seconds,
            rules=rules,
        )

    def _met(self, passed: Passed) -> Met:
        chances = [f"chance {step.probability}" for step in passed.rule.steps if isinstance(step, Chance)]
        looked_up = [
            "the client is remembered"
            for step in passed.rule.steps
            if isinstance(step, InSet) and not step.inverted and self._remembers(step.collection)
        ]
        does = (in_words(self._version, step) for step in passed.did)
        return Met(passed.chain, passed.rule.text, passed.rule.line, (*chances, *looked_up, *does))

    def _remembers(self, collection: str) -> bool:
        return self._rules.collections[collection].remembers


def _reason(outcome: Outcome, passed: Sequence[Passed], *, to_cluster_ip: bool) -> str:
    match outcome.fate:
        case Fate.UNDECIDED:
            return why.unread(passed)
        case Fate.REJECTED | Fate.DROPPED:
            return why.refusal(passed, "internalTrafficPolicy" if to_cluster_ip else "externalTrafficPolicy")
        case Fate.DELIVERED if outcome.source != "kept":
            return why.masquerade(passed, outcome, to_cluster_ip=to_cluster_ip)
    return ""


def _when(asked: Box, box: Box) -> Iterator[str]:
    """Yield what decides although it was not said."""
    for asked_names, names, what in (
        (asked.inputs, box.inputs, "it comes in by"),
        (asked.outputs, box.outputs, "it goes out by"),
    ):
        if names != asked_names:
            named = sorted(names - {"*"})
            but = sorted(asked_names - names)
            yield f"{what} {' or '.join(named)}" if "*" not in names else f"{what} no {' or '.join(but)}"
    if box.source_ports != asked.source_ports:
        yield f"its source port is {words.ports(box.source_ports)}"


def _trail(path: Path) -> list[Passed]:
    found = []
    passed = path.trail
    while passed is not None:
        found.append(passed)
        passed = passed.before
    return found[::-1]


def _shared(trails: Sequence[list[Passed]]) -> int:
    """Return how many rules all trails begin with that do the same to all."""
    count = 0
    for rules in zip(*trails, strict=False):
        if any((other.rule is not rules[0].rule or other.did != rules[0].did) for other in rules):
            break
        count += 1
    return count


def _held(rules: RuleSet, source: int) -> Iterator[Memory]:
    """Yield what collections that remember hold of a client."""
    steps = (step for chain in rules.chains.values() for rule in chain.rules for step in rule.steps)
    asking = (step for step in steps if isinstance(step, InSet) and Field.SOURCE in step.key)
    for step in asking:
        collection = rules.collections[step.collection]
        at = step.key.index(Field.SOURCE)
        elements = collection.elements if collection.remembers else ()
        yield from ((step.collection, _others(element, at)) for element in elements if element.key[at] == source)


def _others(element: Element, at: int) -> tuple[int, ...]:
    """Return the parts of a key but one."""
    return tuple(part for position, part in enumerate(element.key) if position != at and isinstance(part, int))
