"""What rules do to a packet, and the tests that split a class into more than two."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from knft.interpret.outcomes import Box, Memory, NewSource
from knft.interpret.ranges import Ranges, common, only, single, without
from knft.interpret.rules import (
    Chance,
    Choose,
    Field,
    InSet,
    Part,
    Random,
    Remember,
    SetMark,
    Step,
    Translate,
    TranslateBy,
    Unknown,
    Verdict,
    Within,
)
from knft.interpret.walk.index import IndexedChain, IndexedCollection
from knft.interpret.walk.journal import InRanges, Journal
from knft.interpret.walk.lookups import Found, look_up
from knft.interpret.walk.packet import Frame, Next, Packet
from knft.interpret.walk.tests import DECIDE, Decision

Target = tuple[Box, Fraction, tuple[int, int | None]]
"""Some of the packets, how many of them, and the address and port that they are sent to."""
_MANY = 4096
"""So many targets of one rule are told apart, and no more."""


class Actions:
    """Carries out the steps of rules that are not plain tests.

    ``waiting`` is where packets go that are split off; ``memory`` is what is remembered of the client.
    """

    def __init__(
        self,
        chains: dict[str, IndexedChain],
        collections: dict[str, IndexedCollection],
        seconds: dict[str, int | None],
        is_local: Callable[[int], bool],
        journal: Journal,
    ) -> None:
        """Prepare for a rule set; ``is_local`` tells whether the node has an address.

        ``seconds`` is for how long a collection remembers, where an action does not say it.
        """
        self._chains = chains
        self._collections = collections
        self._seconds = seconds
        self._is_local = is_local
        self._journal = journal
        self.waiting: list[Packet] = []
        self.memory: frozenset[Memory] = frozenset()
        self.targets: set[int] = set()
        """Where packets were sent that went elsewhere before."""
        self._do: dict[type, Callable[[Packet, Any], Next]] = {
            InSet: self._in_set,
            Chance: self._chance,
            Unknown: self._unknown,
            Verdict: self._verdict,
            Choose: self._choose,
            SetMark: self._set_mark,
            Translate: self._translate,
            TranslateBy: self._translate_by,
            Remember: self._remember,
        }

    def do(self, packet: Packet, step: object) -> Next:
        """Carry out a step; ``packet.resume`` is where its rule goes on."""
        return self._do[type(step)](packet, step)

    def is_idle(self, packet: Packet, chain: str) -> bool:
        """Tell whether a chain does nothing to a packet, as far as that can be seen without splitting the class."""
        there = self._chains[chain]
        numbers = there.concerning(packet)
        return all(self._fails(packet, there.rules[number].steps) for number in numbers)

    def _fails(self, packet: Packet, steps: tuple[Step, ...]) -> bool:
        """Tell whether one of a rule's tests, or the choice after them, fails all packets."""
        for step in steps:
            if isinstance(step, InSet | Choose):
                if self._finds_nothing(packet, step):
                    return True
            elif type(step) not in DECIDE:
                return False
            elif self.decide(packet, step) is False:
                return True
        return False

    def _finds_nothing(self, packet: Packet, step: InSet | Choose) -> bool:
        collection = self._collections[step.collection]
        if collection.remembers or (isinstance(step, InSet) and step.inverted):
            return False
        return all(found.element is None for found in look_up(packet, collection, step.key))

    def decide(self, packet: Packet, step: Step) -> Decision:
        """Decide a plain test, and have the journal know of those about the destination."""
        if type(step) is Within and step.field is Field.DESTINATION:
            self._journal.note(InRanges(step.ranges), packet.destination, packet.ports)
        return DECIDE[type(step)](packet, step)

    def _wait(self, packet: Packet, box: Box, share: Fraction, resume: int) -> Packet:
        other = packet.within(box)
        other.share = packet.share * share
        other.resume = resume
        self.waiting.append(other)
        return other

    def _in_set(self, packet: Packet, test: InSet) -> Next:
        collection = self._collections[test.collection]
        if collection.remembers:
            memory = memory_of(packet, test.collection, test.key)
            packet.looked_up |= {memory}
            if test.seconds is not None:
                packet.asked = {**packet.asked, test.collection: test.seconds}
            known = memory in self.memory or memory in packet.remembered
            return Next.STEP if known is not test.inverted else Next.RULE
        results = [(found, (found.element is None) is test.inverted) for found in look_up(packet, collection, test.key)]
        if len(results) == 1:
            return Next.STEP if results[0][1] else Next.RULE
        for found, passes in results:
            self._wait(packet, found.box, found.share, packet.resume if passes else 0)
        return Next.GONE

    def _chance(self, packet: Packet, test: Chance) -> Next:
        if test.probability in (0, 1):
            return Next.STEP if test.probability else Next.RULE
        self._wait(packet, packet.box, 1 - test.probability, resume=0)
        packet.share *= test.probability
        return Next.STEP

    def _unknown(self, _: Packet, __: Unknown) -> Next:
        return Next.UNKNOWN

    def _verdict(self, packet: Packet, verdict: Verdict) -> Next:
        match verdict.kind:
            case "jump" | "goto":
                chain, frame = self._chains[verdict.chain], packet.frame
                outer = frame if verdict.kind == "jump" or frame is None else frame.outer
                packet.frame = Frame(chain, chain.concerning(packet), 0, outer)
                return Next.RULE
            case "return":
                packet.frame = packet.frame.outer if packet.frame is not None else None
                return Next.RULE if packet.frame is not None else Next.POLICY
            case kind:
                return _ENDS[kind]

    def _choose(self, packet: Packet, choice: Choose) -> Next:
        results = list(look_up(packet, self._collections[choice.collection], choice.key))
        if len(results) == 1:
            return self._follow(packet, results[0])
        for found in results:
            other = self._wait(packet, found.box, found.share, resume=0)
            other.pending = self._follow(other, found)
        return Next.GONE

    def _follow(self, packet: Packet, found: Found) -> Next:
        if found.element is None:
            return Next.RULE
        assert isinstance(found.element.value, Verdict)  # noqa: S101 - readers see to it
        return self._verdict(packet, found.element.value)

    def _set_mark(self, packet: Packet, action: SetMark) -> Next:
        packet.mark = (packet.mark & action.keep) ^ action.flip
        return Next.STEP

    def _translate(self, packet: Packet, action: Translate) -> Next:
        if action.what == "snat":
            return self._translate_source(packet, action)
        if action.to_self:
            packet.redirect(packet.destination, _one(action.ports), is_local=True)
            packet.translated = True
            return Next.STOP
        addresses = list(_each(action.addresses)) or [packet.destination]
        ports: list[int | None] = list(_each(action.ports)) or [None]
        targets = [(address, port) for address in addresses for port in ports]
        if len(targets) > _MANY:
            return Next.UNKNOWN
        return self._send_to(packet, [(packet.box, Fraction(1, len(targets)), target) for target in targets])

    def _translate_source(self, packet: Packet, action: Translate) -> Next:
        sources: list[NewSource] = ["masqueraded"] if action.to_self else list(_each(action.addresses))
        if len(sources) > _MANY:
            return Next.UNKNOWN
        share = Fraction(1, max(len(sources), 1))
        for source in sources[1:]:
            other = self._wait(packet, packet.box, share, resume=0)
            other.new_source, other.pending = source, Next.STOP
        packet.share *= share
        packet.new_source = sources[0] if sources else "kept"
        return Next.STOP

    def _translate_by(self, packet: Packet, action: TranslateBy) -> Next:
        targets: list[Target] = []
        missed = 0
        for found in look_up(packet, self._collections[action.collection], action.key):
            if found.element is None:
                self._wait(packet, found.box, found.share, resume=0)
                missed += 1
            else:
                address, *port = found.element.value  # type: ignore[misc] # readers see to it
                targets.append((found.box, found.share, (address, port[0] if port else None)))
        if missed == 1 and not targets:
            self.waiting.pop()
            return Next.RULE
        return self._send_to(packet, targets) if targets else Next.GONE

    def _send_to(self, packet: Packet, targets: list[Target]) -> Next:
        first, *rest = [part for target in targets for part in _told_apart(packet, target)]
        for target in rest:
            other = self._wait(packet, target[0], target[1], resume=0)
            self._redirect(other, *target[2])
            other.pending = Next.STOP
        packet.box = first[0]
        packet.share *= first[1]
        self._redirect(packet, *first[2])
        return Next.STOP

    def _redirect(self, packet: Packet, address: int, port: int | None) -> None:
        self.targets.add(address)
        if not packet.is_redirected:
            self._journal.note(InRanges(single(address)), packet.destination, packet.ports)
        is_same_port = port is None or packet.numbers(Field.DESTINATION_PORT) in (port, single(port))
        packet.translated = address != packet.destination or not is_same_port
        packet.redirect(address, port, is_local=self._is_local(address))

    def _remember(self, packet: Packet, action: Remember) -> Next:
        name = action.collection
        packet.seconds = packet.asked.get(name, self._seconds.get(name)) if action.seconds is None else action.seconds
        drawn = next((part for part in action.key if isinstance(part, Random) and part.modulus > 1), None)
        if drawn is None:
            packet.remembered |= {memory_of(packet, action.collection, action.key)}
            return Next.STEP
        # As many ways as there are numbers: later rules may look for the one that was drawn.
        for number in range(drawn.offset, drawn.offset + drawn.modulus):
            key = tuple(number if part is drawn else part for part in action.key)
            other = self._wait(packet, packet.box, Fraction(1, drawn.modulus), packet.resume)
            other.remembered |= {memory_of(other, action.collection, key)}
        return Next.GONE


_ENDS = {
    "accept": Next.STOP,
    "drop": Next.DROP,
    "reject": Next.REJECT,
    "continue": Next.RULE,
}


def _told_apart(packet: Packet, target: Target) -> Iterator[Target]:
    """Yield those apart who dialled what they are sent to: the kernel does not call them translated (nf_nat_core.c)."""
    box, share, (address, port) = target
    if address != packet.destination or port is None or packet.port is not None:
        yield target
        return
    for ports in (common(box.ports, single(port)), without(box.ports, single(port))):
        if ports:
            yield box._replace(ports=ports), share, (address, port)


def _each(ranges: Ranges) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, min(last, first + _MANY) + 1)


def _one(ranges: Ranges) -> int | None:
    return ranges[0][0] if ranges else None


def memory_of(packet: Packet, collection: str, key: tuple[Part, ...]) -> Memory:
    """Return what a collection remembers of the packets' client under a key: the parts that are not the client's."""
    parts = []
    for part in key:
        if isinstance(part, Random):
            parts.append(part.offset)
        elif isinstance(part, int):
            parts.append(part)
        elif part is not Field.SOURCE:
            held = packet.numbers(part)
            one = held if held is None or isinstance(held, int) else only(held)
            parts.append(-1 if one is None else one)
    return collection, tuple(parts)
