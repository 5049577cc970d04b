"""What clients get at a frontend, by interpreting the rules: an outside client, a pod, and the node itself."""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from knft.explain.client_networks import OTHERS, client_labels
from knft.explain.sentences import Sentence, Statement, state
from knft.families import FAMILY_OF_VERSION, IpVersion
from knft.interpret.compare import formatting
from knft.interpret.compare.partition import are_equal, outcome_shares, partition
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.outcomes import Disposition, Outcome, PacketClass, PacketFields, Path, rule_hits
from knft.interpret.ranges import (
    ADDRESSES,
    LOOPBACK,
    NON_UNICAST,
    PORTS,
    Ranges,
    contains,
    intersection,
    ranges,
    single,
    sole_value,
    subtract,
)
from knft.interpret.reasons import is_cluster_ip
from knft.interpret.rules import DROP_INVALID, Field, InSet, Interface, RuleSet, State, Within
from knft.interpret.trace import outcome_reason
from knft.interpret.walk.recording import RecordingWalker
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NUMBERS, Protocol


class ClientOutcome(Struct, frozen=True):
    """What some clients get.

    ``client`` is ``outside``, ``pod``, ``any`` (both, if the rules do not tell pods from other hosts), or ``node``.
    ``sources`` are the clients' addresses, as ranges; ``which`` describes them if not all of this kind get the same.
    ``fate`` is delivered, rejected, dropped or undecided. ``endpoints`` are empty if the destination is not translated;
    each gets the same share. ``text`` is the outcome in words.
    """

    client: str
    which: str
    sources: tuple[str, ...]
    fate: str
    endpoints: tuple[str, ...]
    source: str
    affinity_seconds: int | None
    text: str


class _Answer(NamedTuple):
    outcomes: tuple[ClientOutcome, ...]
    has_hairpin: bool


class Probes:
    """Sends packet classes through the rules of one family. ``node_ip`` is the node's own address, "" if unknown."""

    def __init__(self, rules: RuleSet, node_addresses: Ranges, node_ip: str) -> None:
        """Index the rules."""
        self.rules, self._node_addresses = rules, node_addresses
        self._version = rules.version
        self._walker = RecordingWalker(rules, node_addresses)
        self._answers: dict[tuple[str, int, Protocol], _Answer] = {}
        self._interfaces = frozenset({"*"} | (MentionedValues((rules,)).interfaces - {"lo", ""}))
        self._excluded = ranges((*node_addresses, *LOOPBACK[self._version], *NON_UNICAST[self._version]))
        """The addresses that no client outside of the node has."""
        self._clients = tuple(self._client_fields())
        self._node_source = int(ip_address(node_ip)) if node_ip else None

    @property
    def knows_pods(self) -> bool:
        """Whether the rules tell pods from other hosts."""
        return any(client == "pod" for client, _ in self._clients)

    def notes(self) -> Iterator[Statement]:
        """Yield what the rules do with packets of all Service ports, besides the first one of a connection."""
        chain = self.rules.chains.get(f"{FAMILY_OF_VERSION[self._version].nft} knft filter-forward")
        if chain is not None and any(rule.steps == DROP_INVALID for rule in chain.rules):
            yield state(Sentence.INVALID_DROPPED)

    def is_node_address(self, address: str) -> bool:
        """Whether an address is known to be the node's."""
        return contains(self._node_addresses, int(ip_address(address)))

    def outcomes(self, address: str, port: int, protocol: Protocol) -> tuple[ClientOutcome, ...]:
        """Return what clients of each kind get at a destination."""
        return self._answer(address, port, protocol).outcomes

    def has_hairpin(self, address: str, port: int, protocol: Protocol) -> bool:
        """Whether some clients of a destination may get themselves, and see the node's address as the source."""
        return self._answer(address, port, protocol).has_hairpin

    def _answer(self, address: str, port: int, protocol: Protocol) -> _Answer:
        key = (address, port, protocol)
        if key not in self._answers:
            self._answers[key] = self._new_answer(*key)
        return self._answers[key]

    def _new_answer(self, address: str, port: int, protocol: Protocol) -> _Answer:
        found: list[ClientOutcome] = []
        has_hairpin = False
        for client, packets in self._packets(address, port, protocol):
            all_pieces = partition(self._walker.paths(_without_destination(packets)), ())
            pieces = [piece for piece in all_pieces if not _is_hairpin(piece.left)]
            hairpins = (pair for piece in all_pieces if _is_hairpin(piece.left) for pair in piece.fields.sources)
            absent = ranges((*self._excluded, *single(packets.destination), *hairpins))
            has_hairpin |= len(pieces) < len(all_pieces)
            labels = client_labels(self._version, [piece.fields.sources for piece in pieces], absent)
            of_client = [
                self._outcome(client, label, piece.left, packets) for label, piece in zip(labels, pieces, strict=True)
            ]
            found += sorted(of_client, key=lambda item: (item.which == OTHERS, item.which))
        return _Answer(tuple(found), has_hairpin)

    def treats_equally(self, other: "Probes", address: str, port: int, protocol: Protocol) -> bool:
        """Whether the rules of both treat all packets to a destination equally."""
        return all(
            are_equal(self._walker.paths(packets), other._walker.paths(packets))  # noqa: SLF001 - the same class
            for _, packets in self._packets(address, port, protocol)
        )

    def _packets(self, address: str, port: int, protocol: Protocol) -> Iterator[tuple[str, PacketClass]]:
        target, number = int(ip_address(address)), PROTOCOL_NUMBERS[NFT_PROTOCOLS[protocol]]
        is_local = contains(self._node_addresses, target)
        if not contains(LOOPBACK[self._version], target):
            for client, fields in self._clients:
                at_port = fields._replace(ports=single(port))
                yield client, PacketClass("network", number, target, is_local, at_port)
        source = target if is_local else self._node_source
        if source is not None:
            fields = PacketFields(single(port), single(source), PORTS, outputs=self._interfaces, states=_NEW)
            yield "node", PacketClass("node", number, target, is_local, fields, is_source_selected=is_local)

    def _client_fields(self) -> Iterator[tuple[str, PacketFields]]:
        """Yield the kinds of clients that send packets to the node, with the fields of their packets."""
        fields = PacketFields(
            (), subtract(ADDRESSES[self._version], self._excluded), PORTS, self._interfaces, self._interfaces, _NEW
        )
        pods, interfaces = pod_addresses(self.rules), self._pod_interfaces()
        if interfaces:
            yield "pod", fields._replace(inputs=interfaces)
            yield "outside", fields._replace(inputs=fields.inputs - interfaces)
        elif pods is not None and pods != ADDRESSES[self._version]:
            yield "pod", fields._replace(sources=intersection(fields.sources, pods))
            yield "outside", fields._replace(sources=subtract(fields.sources, pods))
        else:
            yield "any", fields

    def _pod_interfaces(self) -> frozenset[str]:
        names = (
            step.names
            for step in _steps(self.rules)
            if isinstance(step, Interface) and step.field is Field.INPUT and step.inverted
        )
        return frozenset(name for each in names for name in each)

    def _outcome(self, client: str, which: str, paths: Sequence[Path], packets: PacketClass) -> ClientOutcome:
        to_cluster_ip = is_cluster_ip(self.rules, packets.destination)
        outcomes = sorted({path.outcome for path in paths}, key=repr)
        reasons = sorted(
            {outcome_reason(path.outcome, rule_hits(path.trail), to_cluster_ip=to_cluster_ip) for path in paths} - {""}
        )
        text = formatting.format_outcomes(self._version, outcome_shares(paths))
        first = outcomes[0]
        return ClientOutcome(
            client,
            which,
            tuple(_format_range(self._version, *pair) for pair in paths[0].fields.sources),
            first.disposition.value,
            tuple(sorted({self._endpoint(item) for item in outcomes if item.is_translated})),
            formatting.format_source(self._version, first.source),
            first.seconds,
            ": ".join([text, *([" and ".join(reasons)] if reasons else [])]),
        )

    def _endpoint(self, outcome: Outcome) -> str:
        return formatting.format_endpoint(self._version, outcome)


_NEW: frozenset[State] = frozenset({"new"})


def pod_addresses(rules: RuleSet) -> Ranges | None:
    """Return the addresses that knft's rules take for pods, None if they tell no pods from other hosts."""
    for step in _steps(rules):
        match step:
            case Within(field=Field.SOURCE, ranges=found, inverted=True):
                return found
            case InSet(collection=name, key=(Field.SOURCE,), inverted=True):
                elements = rules.collections[name].elements
                pairs = (item.key[0] for item in elements)
                return ranges((pair, pair) if isinstance(pair, int) else pair for pair in pairs) or None
    return None


def _steps(rules: RuleSet) -> Iterator[object]:
    """Yield the steps of the chain that decides whether traffic to cluster IPs is masqueraded."""
    chain = rules.chains.get(f"{FAMILY_OF_VERSION[rules.version].nft} knft services")
    for rule in chain.rules if chain is not None else ():
        yield from rule.steps


def _is_hairpin(paths: Iterable[Path]) -> bool:
    """Tell whether the paths are of one client that may get itself as the endpoint, masqueraded."""
    return any(
        path.outcome.address is not None
        and sole_value(path.fields.sources) == path.outcome.address
        and path.outcome.source == "masqueraded"
        and path.outcome.disposition is Disposition.DELIVERED
        for path in paths
    )


def _without_destination(packets: PacketClass) -> PacketClass:
    """Return the packets without those from their own destination, which only the node itself sends.

    If loadBalancerSourceRanges has an address of the node, rules also allow the load balancer IP as the source.
    """
    if packets.origin == "node":
        return packets
    sources = subtract(packets.fields.sources, single(packets.destination))
    return replace(packets, fields=packets.fields._replace(sources=sources))


def _format_range(version: IpVersion, first: int, last: int) -> str:
    ends = [formatting.format_address(version, number) for number in (first, last)]
    return ends[0] if first == last else "-".join(ends)
