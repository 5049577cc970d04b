"""Traces one packet through a rule set: the rules that it hits, its possible outcomes, and the reasons for them.

The structs from ``TracedRule`` to ``Trace`` are the JSON output of ``knft trace``; ``trace.schema.json`` is generated
from them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from knft.families import IpVersion
from knft.interpret import reasons
from knft.interpret.action_text import action_text
from knft.interpret.compare import formatting
from knft.interpret.compare.partition import Piece, partition
from knft.interpret.outcomes import AffinityEntry, Disposition, Outcome, PacketClass, PacketFields, RuleHit, rule_hits
from knft.interpret.ranges import Ranges
from knft.interpret.rules import Element, Field, InSet, Probability, RuleSet, State
from knft.interpret.walk.recording import RecordingWalker


class TracedRule(Struct, frozen=True):
    """A rule that the packet hits; ``line`` is its line in the capture, 0 if the capture has no lines.

    ``does`` lists its actions, such as "chance 1/3", "jump to X", "mark 0x4000", "to 10.244.1.11:8080", "masquerade".
    """

    chain: str
    rule: str
    line: int
    does: tuple[str, ...]


class TracedOutcome(Struct, frozen=True):
    """The outcome for a share of the packets: ``share`` is a fraction such as ``1/3``, ``percent`` the same number.

    ``endpoint`` is empty if the destination is not translated. ``source`` is the source that the endpoint sees: kept,
    masqueraded, frontend, or an address. ``why`` is the reason if the packet is rejected, dropped, undecided or
    masqueraded. ``seconds`` is the session affinity timeout, null without affinity. ``rules`` are the rules that only
    packets with this outcome hit, after the ``rules`` of the alternative.
    """

    share: str
    percent: float
    fate: Literal["delivered", "rejected", "dropped", "undecided"]
    endpoint: str
    source: str
    why: str
    seconds: int | None
    rules: tuple[TracedRule, ...]


class TracedCase(Struct, frozen=True):
    """The outcomes under the conditions ``when``; their shares sum to one.

    ``when`` lists the values that the command line leaves open and that affect the outcome: an interface, a source
    port. ``rules`` are the rules that the packet hits first, whatever the outcome; ``then`` those that it hits last.
    ``ends`` are the outcomes.
    """

    when: tuple[str, ...]
    rules: tuple[TracedRule, ...]
    ends: tuple[TracedOutcome, ...]
    then: tuple[TracedRule, ...]


class Trace(Struct, frozen=True):
    """A packet, and what a rule set does to it.

    ``rule_set`` is the name of the rule set. ``ways`` are the alternatives: one for each combination of values that the
    command line leaves open. ``remarks`` are warnings. ``service`` is the Service port of the destination, null if it
    is no frontend. ``sender`` is ``node`` for a process of the node. ``interface`` is
    empty if the command line names none. ``client`` is
    ``new``, or what session affinity remembers of it. ``version`` is the version of this format. ``state`` is the
    packet's state in conntrack: new for the first packet of a connection. ``source_port`` is null and
    ``output_interface`` is empty if the command line names none.
    """

    rule_set: str
    family: str
    source: str
    sender: Literal["network", "node"]
    interface: str
    destination: str
    service: str | None
    client: str
    ways: tuple[TracedCase, ...]
    remarks: tuple[str, ...] = ()
    version: int = 1
    state: State = "new"
    source_port: int | None = None
    output_interface: str = ""


def undecided_case(reason: str) -> TracedCase:
    """Return the case of a packet whose outcome cannot be computed, because input is missing."""
    end = TracedOutcome("1", 100.0, "undecided", endpoint="", source="kept", why=reason, seconds=None, rules=())
    return TracedCase((), (), (end,), ())


def is_input_missing(trace: Trace) -> bool:
    """Return whether input is missing: no rule is the reason that the outcome is undecided."""
    return any(not case.rules and end.fate == "undecided" and not end.rules for case in trace.ways for end in case.ends)


class TracedClient(Struct, frozen=True):
    """A client and its session affinity entries; ``text`` describes them."""

    text: str = "new"
    entries: frozenset[AffinityEntry] = frozenset()


NEW_TRACED_CLIENT = TracedClient()

FindEntries = Callable[[IpVersion, int, frozenset[AffinityEntry]], Iterable[AffinityEntry]]
"""Returns which of some affinity entries a client, an address, has."""


class Tracer:
    """Traces packets through one rule set."""

    def __init__(self, rules: RuleSet, node_addresses: Ranges) -> None:
        """Prepare the rules of a node with these addresses."""
        self._rules = rules
        self._version = rules.version
        self._walker = RecordingWalker(rules, node_addresses)

    def alternatives(self, packets: PacketClass, client: TracedClient = NEW_TRACED_CLIENT) -> tuple[TracedCase, ...]:
        """Return the alternatives for a packet: several if open values of its fields affect the outcome."""
        is_cluster_ip = reasons.is_cluster_ip(self._rules, packets.destination)
        pieces = partition(self._walker.paths(packets, client.entries), ())
        return tuple(self._case(packets.fields, piece, to_cluster_ip=is_cluster_ip) for piece in pieces)

    def client_sent_to(self, packets: PacketClass, address: int, port: int) -> TracedClient | None:
        """Return a client that was sent to an endpoint, None if the rules add no affinity entry for that."""
        sent = (path for path in self._walker.paths(packets) if path.outcome[1:3] == (address, port))
        entries = frozenset[AffinityEntry]().union(*(path.written_entries for path in sent))
        return (
            TracedClient(f"was sent to {formatting.format_socket(self._version, address, port)}", entries)
            if entries
            else None
        )

    def client_in_rule_set(
        self, packets: PacketClass, source: int, find_entries: FindEntries | None = None
    ) -> TracedClient:
        """Return a client with its affinity entries that the packet reads.

        ``find_entries`` finds them; without it, they are those that the captured rule set has.
        """
        read = frozenset[AffinityEntry]().union(*(path.read_entries for path in self._walker.paths(packets)))
        present = read.intersection(
            _entries_of(self._rules, source) if find_entries is None else find_entries(self._version, source, read)
        )
        return TracedClient("is remembered", present) if present else NEW_TRACED_CLIENT

    def _case(self, given: PacketFields, piece: Piece, *, to_cluster_ip: bool) -> TracedCase:
        trails = [rule_hits(path.trail) for path in piece.left]
        first = _common_prefix_length(trails)
        last = _common_prefix_length([trail[first:][::-1] for trail in trails]) if len(trails) > 1 else 0
        shares: dict[tuple[Outcome, str, tuple[TracedRule, ...]], Fraction] = {}
        for path, trail in zip(piece.left, trails, strict=True):
            reason = outcome_reason(path.outcome, trail, to_cluster_ip=to_cluster_ip)
            end = path.outcome, reason, tuple(map(self._traced_rule, trail[first : len(trail) - last]))
            shares[end] = shares.get(end, Fraction()) + path.share
        ends = sorted(shares.items(), key=lambda item: repr(item[0]))
        return TracedCase(
            when=tuple(_conditions(given, piece.fields)),
            rules=tuple(map(self._traced_rule, trails[0][:first])),
            ends=tuple(self._traced_outcome(*end, share) for end, share in ends),
            then=tuple(map(self._traced_rule, trails[0][len(trails[0]) - last :])),
        )

    def _traced_outcome(
        self, outcome: Outcome, reason: str, rules: tuple[TracedRule, ...], share: Fraction
    ) -> TracedOutcome:
        return TracedOutcome(
            share=str(share),
            percent=round(float(share * 100), 2),
            fate=outcome.disposition.value,
            endpoint=formatting.format_endpoint(self._version, outcome) if outcome.is_translated else "",
            source=formatting.format_source(self._version, outcome.source),
            why=reason,
            seconds=outcome.seconds,
            rules=rules,
        )

    def _traced_rule(self, hit: RuleHit) -> TracedRule:
        chances = [f"chance {step.share}" for step in hit.rule.steps if isinstance(step, Probability)]
        affinity = [
            "the client is remembered"
            for step in hit.rule.steps
            if isinstance(step, InSet) and not step.inverted and self._is_dynamic(step.collection)
        ]
        actions = (action_text(self._version, step) for step in hit.actions)
        return TracedRule(hit.chain, hit.rule.text, hit.rule.line, (*chances, *affinity, *actions))

    def _is_dynamic(self, collection: str) -> bool:
        return self._rules.collections[collection].is_dynamic


def outcome_reason(outcome: Outcome, trail: Sequence[RuleHit], *, to_cluster_ip: bool) -> str:
    """Return why packets are rejected, dropped, undecided or masqueraded; "" for other outcomes."""
    match outcome.disposition:
        case Disposition.UNDECIDED:
            return reasons.uninterpreted_rule(trail)
        case Disposition.REJECTED | Disposition.DROPPED:
            return reasons.blocking_reason(trail, "internalTrafficPolicy" if to_cluster_ip else "externalTrafficPolicy")
        case Disposition.DELIVERED if outcome.source != "kept":
            return reasons.masquerade_reason(trail, outcome, to_cluster_ip=to_cluster_ip)
    return ""


def _conditions(given: PacketFields, fields: PacketFields) -> Iterator[str]:
    """Yield the conditions that distinguish ``fields`` from the given packet."""
    for given_names, names, what in (
        (given.inputs, fields.inputs, "the input interface is"),
        (given.outputs, fields.outputs, "the output interface is"),
    ):
        if names != given_names:
            included = sorted(names - {"*"})
            excluded = sorted(given_names - names)
            yield f"{what} {' or '.join(included)}" if "*" not in names else f"{what} not {' or '.join(excluded)}"
    if fields.source_ports != given.source_ports:
        yield f"the source port is {formatting.format_ports(fields.source_ports)}"


def _common_prefix_length(trails: Sequence[list[RuleHit]]) -> int:
    """Return how many hits with the same rule and the same actions all trails start with."""
    count = 0
    for hits in zip(*trails, strict=False):
        if any((hit.rule is not hits[0].rule or hit.actions != hits[0].actions) for hit in hits):
            break
        count += 1
    return count


def _entries_of(rules: RuleSet, source: int) -> Iterator[AffinityEntry]:
    """Yield the affinity entries of a client in the dynamic collections of a rule set."""
    steps = (step for chain in rules.chains.values() for rule in chain.rules for step in rule.steps)
    lookups = (step for step in steps if isinstance(step, InSet) and Field.SOURCE in step.key)
    for step in lookups:
        collection = rules.collections[step.collection]
        position = step.key.index(Field.SOURCE)
        elements = collection.elements if collection.is_dynamic else ()
        for element in elements:
            if element.key[position] == source:
                yield step.collection, _key_without(element, position)


def _key_without(element: Element, removed: int) -> tuple[int, ...]:
    """Return the parts of an element's key except the one at a position."""
    return tuple(part for position, part in enumerate(element.key) if position != removed and isinstance(part, int))
