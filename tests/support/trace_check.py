"""What the interpreters say of a scenario's packets, held to what the scenario expects of the kernel.

Rule sets come in, as readers made them of captures or of what is rendered. ``Tracer.hold`` walks a packet through them
as somebody in the lab sends it: nothing is sent, and no kernel is asked. Where rules let a packet go its way, what the
lab then does with it is known here (``_Lab``).
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
UNTRACED = "a pod dials its own address: the packet never comes to the node"
"""The one reason for which a packet is not traced."""
_BRIDGE, _UPLINK = "cni0", "eth0"
_REFUSALS = {Disposition.REJECTED: "rejected", Disposition.DROPPED: "dropped", Disposition.UNDECIDED: "undecided"}
_UNSERVED, _LOST = "unserved", "lost"

Ends = dict[str, Fraction]
"""Who answers, or how the packet is refused in ``Expected``'s words, and how often."""


def untraced(packet: Packet) -> bool:
    """Tell whether a packet cannot be traced, for the reason UNTRACED."""
    return packet.client != plan.NODE.host and packet.to.rpartition(":")[0] == f"${packet.client}"


class Tracer:
    """One scenario's rule sets; ``own`` are the addresses that the node has, but for those that IPVS binds.

    ``tells_silence`` is given where rules themselves have to drop what nobody shall answer; otherwise such a packet
    may get lost in the lab as well.
    """

    def __init__(
        self, scenario: Scenario, rules: Mapping[IpVersion, RuleSet], own: Iterable[str], *, tells_silence: bool
    ) -> None:
        listed = tuple(own)
        self._tells_silence = tells_silence
        self._own = {version: _own(listed, version) for version in rules}
        self._bound = {version: found.ipvs_addresses for version, found in rules.items()}
        self._walkers = {version: Walker(found, self._own[version]) for version, found in rules.items()}
        self._labs = {version: _Lab(scenario, version, self._own[version]) for version in rules}

    def check(self, packet: Packet, version: IpVersion, expected: Expectation) -> None:
        """Hold what is traced to what is expected: who answers and how often, and the source that each of them sees."""
        if untraced(packet):
            return
        first = self._paths(packet, version, "new")
        wanted = _wanted(expected)
        assert self._ends(first, packet, version) == [wanted]
        if not expected.answered_by and not expected.always_one_of:
            return
        # A connection's later packets follow its first.
        later = self._paths(packet, version, "established")
        assert self._ends(later, packet, version) == [wanted]
        for path in (*first, *later):
            who = self._who(path.outcome, packet, version)
            assert self._sources(path.outcome, who, packet, version) & seen_by(who, expected.source, packet, version)
            if expected.always_one_of:
                again = self._paths(packet, version, "new", path.written_entries)
                assert self._ends(again, packet, version) == [{who: Fraction(1)}]

    def _paths(
        self, packet: Packet, version: IpVersion, state: State, memory: frozenset[AffinityEntry] = frozenset()
    ) -> list[Path]:
        target, port = _dialled(packet, version)
        source = self._source(packet, version)
        box = PacketFields(
            ports=single(port),
            sources=single(source),
            inputs=frozenset({_enters_by(packet.client)}),
            # Where it leaves by depends on where the rules send it.
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
        """Return the address that the sender takes: what it is told, its own, or what its kernel chooses."""
        target, _ = _dialled(packet, version)
        has = contains(self._own[version], target) or contains(self._bound[version], target)
        if not packet.source_address and packet.client == plan.NODE.host and has:
            return target
        return _number(in_family(packet.source_address or f"${packet.client}", version))

    def _ends(self, paths: list[Path], packet: Packet, version: IpVersion) -> list[Ends]:
        """Return what becomes of a packet at each point of its class: one result, unless rules ask for more of it."""
        found: list[Ends] = []
        for piece in partition(paths, ()):
            ends: Ends = {}
            for path in piece.left:
                who = self._who(path.outcome, packet, version)
                ends[who] = ends.get(who, Fraction()) + path.share
            if ends not in found:
                found.append(ends)
        return found

    def _who(self, outcome: Outcome, packet: Packet, version: IpVersion) -> str:
        if outcome.disposition is not Disposition.DELIVERED:
            return _REFUSALS[outcome.disposition]
        target, dialled = _dialled(packet, version)
        address = target if outcome.address is None else outcome.address
        port = dialled if outcome.port is None else outcome.port
        lab = self._labs[version]
        who = lab.who(address, port, packet.protocol)
        is_heard = any(lab.is_heard(who, source) for source in self._sources(outcome, who, packet, version))
        if who == _LOST or not is_heard:
            return _LOST if self._tells_silence else _REFUSALS[Disposition.DROPPED]
        return who

    def _sources(self, outcome: Outcome, who: str, packet: Packet, version: IpVersion) -> frozenset[str]:
        """Return the source addresses that whoever gets the packet may see."""
        match outcome.source:
            case "kept":
                return frozenset({_text(self._source(packet, version), version)})
            case "frontend" | "masqueraded" as word:
                return seen_by(who, word, packet, version)
            case address:
                return frozenset({_text(address, version)})


class _Lab:
    """Who is where, and what becomes of a packet that the rules let pass."""

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
        self._there = ranges((pods, *((at, at) for at in remotes)))
        others = [_number(at.of(version)) for at in (plan.NODE.lan, plan.OUTSIDE)]
        self._heard_from_afar = ranges((pods, *((at, at) for at in others)))

    def who(self, address: int, port: int, protocol: str) -> str:
        """Return who answers at an address: a host, or nobody, but with a reset; or it is sent to nobody (NOBODY)."""
        host = self._listening.get((address, port, protocol))
        if host is not None:
            return host
        return _UNSERVED if contains(self._own, address) or contains(self._there, address) else _LOST

    def is_heard(self, host: str, source: str) -> bool:
        """Tell whether an answer finds its way back through the node: its own pods have no other way."""
        is_remote = host.startswith(plan.REMOTE.pod_prefix)
        return not is_remote or contains(self._heard_from_afar, _number(source))


def _wanted(expected: Expectation) -> Ends:
    """Return what has to come of a packet, where all who may answer do so alike often."""
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


def _dialled(packet: Packet, version: IpVersion) -> tuple[int, int]:
    target, _, port = in_family(packet.to, version).rpartition(":")
    return _number(target), int(port)


def _number(address: str) -> int:
    return int(ipaddress.ip_address(address))


def _text(address: int, version: IpVersion) -> str:
    return str(ipaddress.IPv4Address(address) if version == 4 else ipaddress.IPv6Address(address))
