"""Compares traces of a scenario's packets with its expectations; other tests compare real packets with the same ones.

Inputs are rule sets, read from captures or rendered. ``Tracer.check`` traces a packet through them as a host in the lab
sends it: no packet is sent, and the kernel is not used. What the lab does with a packet that the rules let pass is
modelled here (``_Lab``).
"""

import ipaddress
from collections.abc import Iterable, Mapping
from fractions import Fraction

from knft.families import IpVersion
from knft.interpret.compare.partition import partition
from knft.interpret.outcomes import AffinityEntry, Disposition, Origin, Outcome, PacketClass, PacketFields, Path
from knft.interpret.ranges import LOOPBACK, Ranges, contains, ranges, single
from knft.interpret.rules import RuleSet, State
from knft.interpret.walk.walker import Walker
from tests.support.families import addresses, in_family
from tests.support.lab import plan
from tests.support.scenario import UNALLOCATED, UNPROXIED, Expectation, Packet, Scenario
from tests.support.seen_sources import seen_by

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
UNTRACED_REASON = "a pod connects to its own address, so the packet does not reach the node"
"""The only reason for not tracing a packet."""
_BRIDGE, _UPLINK = "cni0", "eth0"
_REFUSALS = {Disposition.REJECTED: "rejected", Disposition.DROPPED: "dropped", Disposition.UNDECIDED: "undecided"}
_UNSERVED, _LOST_IN_LAB = "unserved", "lost"

Results = dict[str, Fraction]
"""Probabilities of answering servers and other results: "rejected", "dropped", "undecided", "unserved" (a reset by the
node), or "lost", if the lab and not the rules prevents an answer."""


def is_untraced(packet: Packet) -> bool:
    """Tell whether a packet cannot be traced, for the reason UNTRACED_REASON."""
    return packet.client != plan.NODE.host and packet.to.rpartition(":")[0] == f"${packet.client}"


class Tracer:
    """The rule sets of one scenario; ``own`` are the node's addresses, without those that IPVS binds.

    ``rules_drop`` is true if the rules themselves drop packets that are not to be answered; otherwise such a packet
    may also get lost in the lab.
    """

    def __init__(
        self, scenario: Scenario, rules: Mapping[IpVersion, RuleSet], own: Iterable[str], *, rules_drop: bool
    ) -> None:
        listed = tuple(own)
        self._rules_drop = rules_drop
        self._own = {version: _own(listed, version) for version in rules}
        self._bound = {version: found.ipvs_addresses for version, found in rules.items()}
        self._walkers = {version: Walker(found, self._own[version]) for version, found in rules.items()}
        self._labs = {version: _Lab(scenario, version, self._own[version]) for version in rules}

    def check(self, packet: Packet, version: IpVersion, expected: Expectation) -> None:
        """Compare the trace with the expectation: servers, their probabilities, and the source that each one sees."""
        if is_untraced(packet):
            return
        first = self._paths(packet, version, "new")
        expected_ends = _expected_results(expected)
        assert self._results(first, packet, version) == [expected_ends]
        if not expected.answered_by and not expected.always_one_of:
            return
        # Later packets of a connection take the path of the first one.
        later = self._paths(packet, version, "established")
        assert self._results(later, packet, version) == [expected_ends]
        for path in (*first, *later):
            receiver = self._receiver(path.outcome, packet, version)
            assert self._sources(path.outcome, receiver, packet, version) & seen_by(
                receiver, expected.source, packet, version
            )
            if expected.always_one_of:
                again = self._paths(packet, version, "new", path.written_entries)
                assert self._results(again, packet, version) == [{receiver: Fraction(1)}]

    def _paths(
        self, packet: Packet, version: IpVersion, state: State, memory: frozenset[AffinityEntry] = frozenset()
    ) -> list[Path]:
        target, port = _destination(packet, version)
        source = self._source(packet, version)
        box = PacketFields(
            ports=single(port),
            sources=single(source),
            inputs=frozenset({_enters_by(packet.client)}),
            # The output interface depends on the destination after NAT.
            outputs=frozenset({_BRIDGE, _UPLINK}),
            states=frozenset({state}),
        )
        is_local = contains(self._own[version], target)
        origin: Origin = "node" if packet.client == plan.NODE.host else "network"
        is_source_selected = origin == "node" and source == target
        sent = PacketClass(
            origin, PROTOCOLS[packet.protocol], target, is_local, box, is_source_selected=is_source_selected
        )
        return self._walkers[version].paths(sent, memory)

    def _source(self, packet: Packet, version: IpVersion) -> int:
        """Return the source address: the packet's, the client's own, or the one that the kernel chooses."""
        target, _ = _destination(packet, version)
        has = contains(self._own[version], target) or contains(self._bound[version], target)
        if not packet.source_address and packet.client == plan.NODE.host and has:
            return target
        return _number(in_family(packet.source_address or f"${packet.client}", version))

    def _results(self, paths: list[Path], packet: Packet, version: IpVersion) -> list[Results]:
        """Return the distinct results of a packet class: one, unless rules tell apart packets that tests do not."""
        found: list[Results] = []
        for piece in partition(paths, ()):
            ends: Results = {}
            for path in piece.left:
                receiver = self._receiver(path.outcome, packet, version)
                ends[receiver] = ends.get(receiver, Fraction()) + path.share
            if ends not in found:
                found.append(ends)
        return found

    def _receiver(self, outcome: Outcome, packet: Packet, version: IpVersion) -> str:
        if outcome.disposition is not Disposition.DELIVERED:
            return _REFUSALS[outcome.disposition]
        target, destination_port = _destination(packet, version)
        address = target if outcome.address is None else outcome.address
        port = destination_port if outcome.port is None else outcome.port
        lab = self._labs[version]
        receiver = lab.receiver(address, port, packet.protocol)
        is_answered = any(
            lab.is_answered(receiver, source) for source in self._sources(outcome, receiver, packet, version)
        )
        if receiver == _LOST_IN_LAB or not is_answered:
            return _LOST_IN_LAB if self._rules_drop else _REFUSALS[Disposition.DROPPED]
        return receiver

    def _sources(self, outcome: Outcome, receiver: str, packet: Packet, version: IpVersion) -> frozenset[str]:
        """Return the source addresses that the receiver may see."""
        match outcome.source:
            case "kept":
                return frozenset({_text(self._source(packet, version), version)})
            case "frontend" | "masqueraded" as word:
                return seen_by(receiver, word, packet, version)
            case address:
                return frozenset({_text(address, version)})


class _Lab:
    """The servers of the lab, and what it does with a packet that the rules let pass."""

    def __init__(self, scenario: Scenario, version: IpVersion, own: Ranges) -> None:
        self._own = own
        self._listening: dict[tuple[int, int, str], str] = {
            (_number(addresses(host).of(version)), port, protocol): host
            for host, port, protocol in scenario.listeners()
        }
        remotes = [_number(at.of(version)) for at in (UNALLOCATED, *UNPROXIED)]
        self._listening |= {(at, 80, "tcp"): plan.REMOTE.host for at in remotes}
        network = ipaddress.ip_network(plan.CLUSTER.of(version))
        pods = (int(network[0]), int(network[-1]))
        self._existing = ranges((pods, *((at, at) for at in remotes)))
        others = [_number(at.of(version)) for at in (plan.NODE.lan, plan.OUTSIDE)]
        self._reachable_from_remote = ranges((pods, *((at, at) for at in others)))

    def receiver(self, address: int, port: int, protocol: str) -> str:
        """Return the server at an address, or "unserved" for a reset, or "lost"."""
        host = self._listening.get((address, port, protocol))
        if host is not None:
            return host
        return _UNSERVED if contains(self._own, address) or contains(self._existing, address) else _LOST_IN_LAB

    def is_answered(self, host: str, source: str) -> bool:
        """Tell whether an answer of the host comes back through the node: pods on the node have no other route."""
        is_remote = host.startswith(plan.REMOTE.pod_prefix)
        return not is_remote or contains(self._reachable_from_remote, _number(source))


def _expected_results(expected: Expectation) -> Results:
    """Return the expected ends; all servers that may answer have the same probability."""
    names = expected.answered_by or expected.always_one_of
    if names:
        return dict.fromkeys(names, Fraction(1, len(names)))
    if expected.unserved:
        return {_UNSERVED: Fraction(1)}
    return {_REFUSALS[Disposition.REJECTED if expected.rejected else Disposition.DROPPED]: Fraction(1)}


def _own(listed: Iterable[str], version: IpVersion) -> Ranges:
    """Return a node's own addresses of a family, and the loopback network."""
    found = (ipaddress.ip_address(address) for address in listed)
    own = ((int(address), int(address)) for address in found if address.version == version)
    return ranges((*own, *LOOPBACK[version]))


def _enters_by(client: str) -> str:
    """Return the node's interface that a client's packets come in by; its own come in by none."""
    if client == plan.NODE.host:
        return ""
    return _BRIDGE if client.startswith(f"{plan.NODE.pod_prefix}-") else _UPLINK


def _destination(packet: Packet, version: IpVersion) -> tuple[int, int]:
    target, _, port = in_family(packet.to, version).rpartition(":")
    return _number(target), int(port)


def _number(address: str) -> int:
    return int(ipaddress.ip_address(address))


def _text(address: int, version: IpVersion) -> str:
    return str(ipaddress.IPv4Address(address) if version == 4 else ipaddress.IPv6Address(address))
