"""Computes the outcome of rule sets for packets of the model, as values of ``service_model``."""

from collections.abc import Iterable
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address, ip_address

from knft.interpret.outcomes import AffinityEntry, Disposition, Origin, PacketClass, PacketFields, Path
from knft.interpret.ranges import LOOPBACK, Ranges, contains, ranges, single
from knft.interpret.rules import RuleSet
from knft.interpret.walk.walker import Walker
from tests.interpret.service_model.service_model import Outcome, Packet, Settings

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
UPLINK = "eth0"
"""The input interface of packets from outside."""
VERDICTS = {Disposition.REJECTED: "rejected", Disposition.DROPPED: "dropped"}


class MixedOutcomeError(Exception):
    """A packet has a combination of outcomes that the model cannot represent."""


class RuleOutcomes:
    """The outcomes of a rule set on a node."""

    def __init__(self, rules: RuleSet, settings: Settings, packets: Iterable[Packet]) -> None:
        """Collect the affinity entries for each endpoint by sending packets to all frontends."""
        self._version = rules.version
        node_addresses = (
            int(ip_address(text)) for text in settings.addresses if ip_address(text).version == rules.version
        )
        self._node_addresses: Ranges = ranges(
            (*((number, number) for number in node_addresses), *LOOPBACK[rules.version])
        )
        self._pod_interface = settings.pod_interface
        self._walker = Walker(rules, self._node_addresses)
        self._entries: dict[str, frozenset[AffinityEntry]] = {}
        for packet in packets:
            if packet.family == rules.version and packet.remembered is None:
                for path in self._paths(packet):
                    if path.written_entries:
                        name = self._endpoint(path)
                        self._entries[name] = self._entries.get(name, frozenset()) | path.written_entries

    def outcome(self, packet: Packet) -> Outcome:
        """Return the outcome of a packet."""
        paths = self._paths(packet)
        assert sum(path.share for path in paths) == 1
        if all(path.outcome.disposition is Disposition.DELIVERED and path.outcome.is_translated for path in paths):
            return self._delivered(paths)
        outcomes = {path.outcome for path in paths}
        if len(outcomes) > 1:
            raise MixedOutcomeError(outcomes)
        (outcome,) = outcomes
        if outcome.disposition is Disposition.DELIVERED and outcome.source == "kept":
            return Outcome("untouched")
        if outcome.disposition not in VERDICTS:
            raise MixedOutcomeError(outcomes)
        return Outcome(VERDICTS[outcome.disposition])  # type: ignore[arg-type] # these are verdicts

    def _paths(self, packet: Packet) -> list[Path]:
        entries = (
            frozenset[AffinityEntry]()
            if packet.remembered is None
            else self._entries.get(packet.remembered, frozenset())
        )
        interface = {"node": "", "pod": self._pod_interface, "outside": UPLINK}[packet.origin]
        destination = int(ip_address(packet.destination))
        fields = PacketFields(
            ports=single(packet.port),
            sources=single(int(ip_address(packet.source))),
            inputs=frozenset({interface}),
            states=frozenset({"new"}),
        )
        origin: Origin = "node" if packet.origin == "node" else "network"
        is_local = contains(self._node_addresses, destination)
        return self._walker.paths(
            PacketClass(origin, PROTOCOLS[packet.protocol], destination, is_local, fields), entries
        )

    def _delivered(self, paths: list[Path]) -> Outcome:
        targets: dict[str, Fraction] = {}
        masqueraded: dict[str, bool] = {}
        for path in paths:
            name, is_masqueraded = self._endpoint(path), path.outcome.source == "masqueraded"
            if masqueraded.setdefault(name, is_masqueraded) is not is_masqueraded or path.outcome.source not in (
                "kept",
                "masqueraded",
            ):
                raise MixedOutcomeError(paths)
            targets[name] = targets.get(name, Fraction()) + path.share
        return Outcome(
            "delivered", targets, frozenset(name for name, is_masqueraded in masqueraded.items() if is_masqueraded)
        )

    def _endpoint(self, path: Path) -> str:
        number, port = path.outcome.address, path.outcome.port
        if number is None:
            raise MixedOutcomeError(path)
        return f"{IPv4Address(number)}:{port}" if self._version == 4 else f"[{IPv6Address(number)}]:{port}"
