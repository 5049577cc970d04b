"""Carries out the actions of rules, and the tests that can split a class into more than two."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

from knft.interpret.outcomes import AffinityEntry, NewSource, PacketFields
from knft.interpret.owned_chains import is_owned_chain
from knft.interpret.ranges import Ranges, intersection, single, sole_value, subtract
from knft.interpret.rules import (
    AddToSet,
    DnatMapLookup,
    Field,
    InSet,
    KeyPart,
    LookUpPriority,
    Probability,
    RandomNumber,
    SetMark,
    SetPriority,
    Step,
    Translate,
    Unknown,
    Verdict,
    VmapLookup,
    Within,
)
from knft.interpret.walk.dependencies import DependencyRecorder, RangesQuery
from knft.interpret.walk.index import IndexedChain, IndexedCollection
from knft.interpret.walk.lookups import LookupResult, look_up
from knft.interpret.walk.matching import EVALUATORS, Decision
from knft.interpret.walk.packet import Frame, Next, PacketState

Target = tuple[PacketFields, Fraction, tuple[int, int | None]]
"""Packet fields, their share, and the new destination: an address, and a port or None if the port stays."""
_ALL_BITS = (1 << 32) - 1
_MAX_TARGETS = 4096
"""Maximum number of addresses and ports that a rule translates to; the result of a rule with more is undecided."""


class Actions:
    """Carries out the steps of rules, except the tests in ``matching``.

    ``pending`` is the stack of packets that were split off and have to be walked. ``affinity`` are the client's entries
    in dynamic collections.
    """

    def __init__(
        self,
        chains: dict[str, IndexedChain],
        collections: dict[str, IndexedCollection],
        timeouts: dict[str, int | None],
        is_local: Callable[[int], bool],
        recorder: DependencyRecorder,
    ) -> None:
        """Prepare for a rule set.

        ``timeouts`` are the default timeouts of dynamic collections. ``is_local`` tells whether the node has an
        address.
        """
        self._chains = chains
        self._collections = collections
        self._timeouts = timeouts
        self._is_local = is_local
        self._is_owned = cache(is_owned_chain)
        self._recorder = recorder
        self.pending: list[PacketState] = []
        self.affinity: frozenset[AffinityEntry] = frozenset()
        self.new_destinations: set[int] = set()
        """The addresses that packets have been redirected to."""
        self._executors: dict[type, Callable[[PacketState, Any], Next]] = {
            InSet: self._in_set,
            LookUpPriority: self._look_up_priority,
            SetPriority: self._set_priority,
            Probability: self._probability,
            Unknown: self._unknown,
            Verdict: self._verdict,
            VmapLookup: self._vmap_lookup,
            SetMark: self._set_mark,
            Translate: self._translate,
            DnatMapLookup: self._dnat_map_lookup,
            AddToSet: self._add_to_set,
        }

    def execute(self, packet: PacketState, step: object) -> Next:
        """Carry out a step; ``packet.resume_step`` is the step that follows it in the rule."""
        if packet.priority is None and isinstance(step, _WITH_KEY) and Field.PRIORITY in step.key:
            return Next.UNKNOWN
        return self._executors[type(step)](packet, step)

    def has_no_effect(self, packet: PacketState, chain: str) -> bool:
        """Return whether a chain certainly does nothing to a packet, without splitting the class."""
        indexed = self._chains[chain]
        numbers = indexed.candidate_rules(packet)
        return all(self._never_acts(packet, indexed.rules[number].steps) for number in numbers)

    def _never_acts(self, packet: PacketState, steps: tuple[Step, ...]) -> bool:
        """Return whether a test or a lookup of a rule fails for all packets of the class."""
        for step in steps:
            if isinstance(step, InSet | VmapLookup):
                if self._never_finds(packet, step):
                    return True
            elif type(step) not in EVALUATORS:
                return False
            elif self.evaluate(packet, step) is False:
                return True
        return False

    def _never_finds(self, packet: PacketState, step: InSet | VmapLookup) -> bool:
        collection = self._collections[step.collection]
        if collection.is_dynamic or (isinstance(step, InSet) and step.inverted):
            return False
        return all(result.element is None for result in look_up(packet, collection, step.key))

    def evaluate(self, packet: PacketState, step: Step) -> Decision:
        """Evaluate a test, and record it if it matches the destination."""
        if type(step) is Within and step.field is Field.DESTINATION:
            self._recorder.record(RangesQuery(step.ranges), packet.destination, packet.ports)
        return EVALUATORS[type(step)](packet, step)

    def _split_off(self, packet: PacketState, fields: PacketFields, share: Fraction, resume_step: int) -> PacketState:
        other = packet.restricted_to(fields)
        other.share = packet.share * share
        other.resume_step = resume_step
        self.pending.append(other)
        return other

    def _in_set(self, packet: PacketState, test: InSet) -> Next:
        collection = self._collections[test.collection]
        if collection.is_dynamic:
            entry = affinity_entry(packet, test.collection, test.key)
            packet.read_entries |= {entry}
            if test.seconds is not None:
                packet.max_ages = {**packet.max_ages, test.collection: test.seconds}
            is_present = entry in self.affinity or entry in packet.written_entries
            return Next.STEP if is_present is not test.inverted else Next.RULE
        results = [
            (result, (result.element is None) is test.inverted) for result in look_up(packet, collection, test.key)
        ]
        if len(results) == 1:
            return Next.STEP if results[0][1] else Next.RULE
        for result, passes in results:
            self._split_off(packet, result.fields, result.share, packet.resume_step if passes else 0)
        return Next.STOP

    def _look_up_priority(self, packet: PacketState, test: LookUpPriority) -> Next:
        results = list(look_up(packet, self._collections[test.collection], test.key))
        for result in results:
            priority = _priority(result)
            if len(results) == 1 and priority is not None:
                packet.priority = priority
                return Next.STEP
            if len(results) == 1:
                return Next.RULE
            resume_step = packet.resume_step if priority is not None else 0
            other = self._split_off(packet, result.fields, result.share, resume_step)
            other.priority = packet.priority if priority is None else priority
        return Next.STOP

    def _set_priority(self, packet: PacketState, test: SetPriority) -> Next:
        packet.priority = test.value
        return Next.STEP

    def _probability(self, packet: PacketState, test: Probability) -> Next:
        if test.share in (0, 1):
            return Next.STEP if test.share else Next.RULE
        self._split_off(packet, packet.fields, 1 - test.share, resume_step=0)
        packet.share *= test.share
        return Next.STEP

    def _unknown(self, _: PacketState, __: Unknown) -> Next:
        return Next.UNKNOWN

    def _verdict(self, packet: PacketState, verdict: Verdict) -> Next:
        match verdict.kind:
            case "jump" | "goto":
                chain, frame = self._chains[verdict.chain], packet.frame
                outer = frame if verdict.kind == "jump" or frame is None else frame.outer
                packet.frame = Frame(chain, chain.candidate_rules(packet), 0, outer)
                return Next.RULE
            case "return":
                packet.frame = packet.frame.outer if packet.frame is not None else None
                return Next.RULE if packet.frame is not None else Next.POLICY
            case kind:
                return _ENDS[kind]

    def _vmap_lookup(self, packet: PacketState, action: VmapLookup) -> Next:
        results = list(look_up(packet, self._collections[action.collection], action.key))
        if len(results) == 1:
            return self._apply_element(packet, results[0])
        for result in results:
            other = self._split_off(packet, result.fields, result.share, resume_step=0)
            other.resume_with = self._apply_element(other, result)
        return Next.STOP

    def _apply_element(self, packet: PacketState, result: LookupResult) -> Next:
        if result.element is None:
            return Next.RULE
        assert isinstance(result.element.value, Verdict)  # noqa: S101 - the readers ensure it
        return self._verdict(packet, result.element.value)

    def _set_mark(self, packet: PacketState, action: SetMark) -> Next:
        packet.mark = (packet.mark & action.keep) ^ action.flip
        frame = packet.frame
        if frame is not None and self._is_owned(frame.chain.name):
            packet.lost_mark |= _ALL_BITS & ~(action.keep | action.flip | packet.own_mark)
            packet.own_mark |= action.flip
        return Next.STEP

    def _translate(self, packet: PacketState, action: Translate) -> Next:
        if action.kind == "snat":
            return self._translate_source(packet, action)
        if action.to_interface_address:
            packet.redirect(packet.destination, _first(action.ports), is_local=True)
            packet.is_translated = True
            return Next.END_OF_BASE_CHAIN
        addresses = list(_numbers(action.addresses)) or [packet.destination]
        ports: list[int | None] = list(_numbers(action.ports)) or [None]
        targets = [(address, port) for address in addresses for port in ports]
        if len(targets) > _MAX_TARGETS:
            return Next.UNKNOWN
        return self._redirect_all(packet, [(packet.fields, Fraction(1, len(targets)), target) for target in targets])

    def _translate_source(self, packet: PacketState, action: Translate) -> Next:
        sources: list[NewSource] = ["masqueraded"] if action.to_interface_address else list(_numbers(action.addresses))
        if len(sources) > _MAX_TARGETS:
            return Next.UNKNOWN
        share = Fraction(1, max(len(sources), 1))
        for source in sources[1:]:
            other = self._split_off(packet, packet.fields, share, resume_step=0)
            other.new_source, other.resume_with = source, Next.END_OF_BASE_CHAIN
        packet.share *= share
        packet.new_source = sources[0] if sources else "kept"
        return Next.END_OF_BASE_CHAIN

    def _dnat_map_lookup(self, packet: PacketState, action: DnatMapLookup) -> Next:
        targets: list[Target] = []
        misses = 0
        for result in look_up(packet, self._collections[action.collection], action.key):
            if result.element is None:
                self._split_off(packet, result.fields, result.share, resume_step=0)
                misses += 1
            else:
                address, *port = result.element.value  # type: ignore[misc] # the readers ensure it
                targets.append((result.fields, result.share, (address, port[0] if port else None)))
        if misses == 1 and not targets:
            self.pending.pop()
            return Next.RULE
        return self._redirect_all(packet, targets) if targets else Next.STOP

    def _redirect_all(self, packet: PacketState, targets: list[Target]) -> Next:
        first, *rest = [part for target in targets for part in _separate_untranslated(packet, target)]
        for target in rest:
            other = self._split_off(packet, target[0], target[1], resume_step=0)
            self._redirect(other, *target[2])
            other.resume_with = Next.END_OF_BASE_CHAIN
        packet.fields = first[0]
        packet.share *= first[1]
        self._redirect(packet, *first[2])
        return Next.END_OF_BASE_CHAIN

    def _redirect(self, packet: PacketState, address: int, port: int | None) -> None:
        self.new_destinations.add(address)
        if not packet.is_redirected:
            self._recorder.record(RangesQuery(single(address)), packet.destination, packet.ports)
        is_same_port = port is None or packet.numbers(Field.DESTINATION_PORT) in (port, single(port))
        packet.is_translated = address != packet.destination or not is_same_port
        packet.redirect(address, port, is_local=self._is_local(address))

    def _add_to_set(self, packet: PacketState, action: AddToSet) -> Next:
        name = action.collection
        packet.seconds = (
            packet.max_ages.get(name, self._timeouts.get(name)) if action.seconds is None else action.seconds
        )
        generated = next((part for part in action.key if isinstance(part, RandomNumber) and part.modulus > 1), None)
        if generated is None:
            packet.written_entries |= {affinity_entry(packet, action.collection, action.key)}
            return Next.STEP
        # One path per number, because later rules can look up the number that was generated.
        for number in range(generated.offset, generated.offset + generated.modulus):
            key = tuple(number if part is generated else part for part in action.key)
            other = self._split_off(packet, packet.fields, Fraction(1, generated.modulus), packet.resume_step)
            other.written_entries |= {affinity_entry(other, action.collection, key)}
        return Next.STOP


_WITH_KEY = (InSet, LookUpPriority, VmapLookup, DnatMapLookup, AddToSet)


def _priority(result: LookupResult) -> int | None:
    """Return the priority that a lookup finds, None if it finds none."""
    value = result.element.value if result.element is not None else None
    return value[0] if isinstance(value, tuple) else None


_ENDS = {
    "accept": Next.END_OF_BASE_CHAIN,
    "drop": Next.DROP,
    "reject": Next.REJECT,
    "continue": Next.RULE,
}


def _separate_untranslated(packet: PacketState, target: Target) -> Iterator[Target]:
    """Separate packets whose destination is already the target: the kernel does not count them as translated."""
    fields, share, (address, port) = target
    if address != packet.destination or port is None or packet.port is not None:
        yield target
        return
    for ports in (intersection(fields.ports, single(port)), subtract(fields.ports, single(port))):
        if ports:
            yield fields._replace(ports=ports), share, (address, port)


def _numbers(ranges: Ranges) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, min(last, first + _MAX_TARGETS) + 1)


def _first(ranges: Ranges) -> int | None:
    return ranges[0][0] if ranges else None


def affinity_entry(packet: PacketState, collection: str, key: tuple[KeyPart, ...]) -> AffinityEntry:
    """Return the entry of a dynamic collection for a key, without the parts that hold the client's address."""
    parts = []
    for part in key:
        if isinstance(part, RandomNumber):
            parts.append(part.offset)
        elif isinstance(part, int):
            parts.append(part)
        elif isinstance(part, Field) and part is not Field.SOURCE:
            values = packet.numbers(part)
            value = values if values is None or isinstance(values, int) else sole_value(values)
            parts.append(-1 if value is None else value)
    return collection, tuple(parts)
