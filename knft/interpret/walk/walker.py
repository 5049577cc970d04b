"""Walks packet classes through a rule set, hook by hook, and returns their paths and outcomes."""

from collections.abc import Hashable, Iterator
from copy import copy
from fractions import Fraction
from functools import cached_property

from knft.interpret.outcomes import (
    POLICY_DROP,
    AffinityEntry,
    Disposition,
    NewSource,
    Outcome,
    PacketClass,
    Path,
    RuleHit,
    extend_trail,
    overlap,
    rule_hits,
)
from knft.interpret.ranges import Ranges, contains, single
from knft.interpret.rules import Field, InSet, RuleSet, Translate, Verdict, Within
from knft.interpret.walk.actions import Actions
from knft.interpret.walk.index import IndexedRule, Indexes
from knft.interpret.walk.matching import EVALUATORS, Decision, Split
from knft.interpret.walk.packet import Frame, Next, PacketState
from knft.interpret.walk.path_cache import AddressGroups, WalkEnd, all_packet_fields, cache_key
from knft.interpret.walk.servers import IPVS_CHAIN, ServersQuery, ServerTable, send_to_real_servers, server_rule
from knft.interpret.walk.stages import IPVS, HookStage, HookStages

_LOOPBACK = frozenset({"lo"})
_NO_INTERFACE = frozenset({""})
_ARRIVING = ("prerouting", "input")
_INVALID = frozenset({"invalid"})
_DISPOSITIONS = {
    Next.DROP: Disposition.DROPPED,
    Next.REJECT: Disposition.REJECTED,
    Next.UNKNOWN: Disposition.UNDECIDED,
}


class Walker:
    """Walks any number of packet classes through one rule set.

    ``node_addresses`` are the known addresses of the node. Walkers whose rule sets share chains or collections can
    share ``indexes``.
    """

    actions: type[Actions] = Actions
    """The class that carries out the actions of rules."""

    def __init__(self, rules: RuleSet, node_addresses: Ranges = (), indexes: Indexes | None = None) -> None:
        """Index a rule set."""
        indexes = indexes or Indexes()
        self._recorder = indexes.recorder
        chains = {name: indexes.of_chain(chain) for name, chain in rules.chains.items()}
        collections = {name: indexes.of_collection(item) for name, item in rules.collections.items()}
        self._node_addresses = node_addresses
        self._ipvs_addresses = rules.ipvs_addresses
        self._sends_from_ipvs_addresses = rules.sends_from_ipvs_addresses
        self._stages = HookStages(rules, chains)
        self._actions = self.actions(chains, collections, _timeouts(rules), self._is_local, indexes.recorder)
        self._servers = ServerTable(rules.servers)
        self._rules = rules
        self._path_cache: dict[Hashable, list[WalkEnd]] = {}
        self._version = rules.version
        self._ends: list[WalkEnd] = []

    @cached_property
    def _address_groups(self) -> AddressGroups:
        """Groups of endpoint addresses, made for the first translated packet: many walkers of a comparison see none."""
        return AddressGroups(self._rules, self._node_addresses)

    def paths(self, packets: PacketClass, affinity: frozenset[AffinityEntry] = frozenset()) -> list[Path]:
        """Return all paths of a packet class; for each packet of the class, the shares of its paths sum to one.

        ``affinity`` are the entries that the rule set's dynamic collections have of the client beforehand.
        """
        self._actions.affinity = affinity
        return [self._path(end) for end in self._walk(self._initial_state(packets))]

    def take_new_destinations(self) -> set[int]:
        """Return the addresses that rules have redirected packets to since the last call."""
        taken, self._actions.new_destinations = self._actions.new_destinations, set()
        return taken

    def _walk(self, packet: PacketState) -> list[WalkEnd]:
        """Walk a packet class until every part has an outcome.

        Reentrant, because the path cache walks the rest of a path.
        """
        outer_ends, self._ends = self._ends, []
        outer_pending, self._actions.pending = self._actions.pending, [packet]
        while self._actions.pending:
            self._run(self._actions.pending.pop())
        ends, self._ends = self._ends, outer_ends
        self._actions.pending = outer_pending
        return ends

    def _is_local(self, address: int) -> bool:
        return contains(self._node_addresses, address) or contains(self._ipvs_addresses, address)

    def _initial_state(self, packets: PacketClass) -> PacketState:
        packet = PacketState(
            fields=packets.fields,
            origin=packets.origin,
            protocol=packets.protocol,
            destination=packets.destination,
            original_destination=packets.destination,
            is_local=packets.is_local,
            stage=self._stages.first(packets.origin),
        )
        if contains(self._ipvs_addresses, packets.destination):
            packet.is_local = True
            if packets.is_source_selected and self._sends_from_ipvs_addresses:
                packet.source = packets.destination
        self._enter(packet, packet.stage)
        return packet

    def _run(self, packet: PacketState) -> None:
        """Walk a packet until it has an outcome or is split into pending ones."""
        following, packet.resume_with = packet.resume_with, Next.RULE
        while following not in _DISPOSITIONS and following is not Next.STOP:
            frame = packet.frame
            if following is Next.POLICY:
                packet.frame = None
                following = Next.DROP if packet.stage.entries[packet.entry].policy == "drop" else Next.RULE
            elif following is Next.END_OF_BASE_CHAIN:
                packet.frame, following = None, Next.RULE
            elif frame is None:
                following = self._next_entry(packet)
            elif packet.resume_step or frame.next < len(frame.rules):
                following = self._rule(packet, frame)
            elif frame.outer is None:
                following = Next.POLICY
            else:
                packet.frame = frame.outer
        if following in _DISPOSITIONS:
            self._end(packet, _DISPOSITIONS[following])

    def _end(self, packet: PacketState, disposition: Disposition) -> None:
        if disposition is Disposition.DROPPED and packet.frame is None:
            chain = packet.stage.entries[packet.entry].chain
            if chain is not None:
                packet.trail = RuleHit(chain.name, POLICY_DROP, packet.trail, (Verdict("drop"),))
        self._ends.append(WalkEnd(packet, disposition, ()))

    def _path(self, end: WalkEnd) -> Path:
        packet, disposition, hits = end
        trail = extend_trail(packet.trail, hits)
        if disposition is Disposition.DELIVERED:
            outcome = self._delivered(packet)
        else:
            outcome = Outcome(disposition, reply=_reply(trail) if disposition is Disposition.REJECTED else "")
        return Path(packet.fields, packet.share, outcome, trail, packet.read_entries, packet.written_entries)

    def _delivered(self, packet: PacketState) -> Outcome:
        source: NewSource = "kept" if packet.source is None else "frontend"
        if packet.new_source is not None:
            source = packet.new_source
        seconds = packet.seconds if packet.server is None else packet.server.seconds
        return Outcome(
            Disposition.DELIVERED,
            packet.destination if packet.is_redirected else None,
            packet.port if packet.is_redirected else None,
            source,
            seconds,
            lost_mark=packet.lost_mark,
            scheduler=packet.scheduler,
        )

    def _next_entry(self, packet: PacketState) -> Next:
        packet.entry += 1
        if packet.entry >= len(packet.stage.entries):
            return self._next_stage(packet)
        entry = packet.stage.entries[packet.entry]
        if entry.kind == IPVS:
            return self._through_servers(packet)
        packet.in_nat = entry.kind == "nat"
        packet.is_tracked = packet.stage.nat_is_done or not entry.is_before_conntrack
        if entry.chain is not None and (not packet.in_nat or self._traverses_nat(packet)):
            packet.frame = Frame(entry.chain, entry.chain.candidate_rules(packet), 0, None)
        return Next.RULE

    def _traverses_nat(self, packet: PacketState) -> bool:
        """Return whether the packet traverses nat chains; split off those that have no connection and do not."""
        stage = packet.stage
        is_over = packet.is_redirected if stage.hook in ("prerouting", "output") else packet.new_source is not None
        states = packet.fields.states
        if stage.nat_is_done or is_over or states <= _INVALID:
            return False
        if states & _INVALID:
            self._actions.pending.append(packet.restricted_to(packet.fields._replace(states=states & _INVALID)))
            packet.fields = packet.fields._replace(states=states - _INVALID)
        return True

    def _next_stage(self, packet: PacketState) -> Next:
        stage = self._stages.after(packet.stage, is_local=packet.is_local, origin=packet.origin)
        if stage is None:
            self._end(packet, Disposition.DELIVERED)
            return Next.STOP
        self._enter(packet, stage)
        group = self._address_groups.group(packet.destination) if packet.is_redirected else None
        if group is None:
            return Next.RULE
        self._end_from_cache(packet, group)
        return Next.STOP

    def _end_from_cache(self, packet: PacketState, group: int) -> None:
        """End a packet like earlier packets with the same memo key, whatever their fields."""
        key = cache_key(packet, group, self._actions.affinity)
        cached = self._path_cache.get(key)
        if cached is None:
            cached = self._path_cache[key] = list(self._remaining_ends(packet))
        for rest, disposition, hits in cached:
            fields = overlap(packet.fields, rest.fields)
            if fields is None:
                continue
            ended = copy(packet)
            ended.fields = fields
            ended.share = packet.share * rest.share
            ended.new_source, ended.lost_mark = rest.new_source, rest.lost_mark
            ended.read_entries |= rest.read_entries
            ended.written_entries |= rest.written_entries
            self._ends.append(WalkEnd(ended, disposition, hits))

    def _remaining_ends(self, packet: PacketState) -> Iterator[WalkEnd]:
        """Yield the ends of packets with any field values that are at this packet's point of the walk."""
        probe = copy(packet)
        probe.fields, probe.share, probe.trail = all_packet_fields(self._version, packet), Fraction(1), None
        probe.read_entries = probe.written_entries = frozenset()
        for ended, disposition, hits in self._walk(probe):
            yield WalkEnd(ended, disposition, (*rule_hits(ended.trail), *hits))

    def _enter(self, packet: PacketState, stage: HookStage) -> None:
        packet.stage, packet.entry, packet.frame = stage, -1, None
        is_looped = packet.origin == "node" and packet.is_local
        if stage.hook in _ARRIVING:
            packet.inputs, packet.outputs = _LOOPBACK if packet.origin == "node" else None, _NO_INTERFACE
        else:
            packet.inputs = _NO_INTERFACE if stage.hook == "output" else None
            packet.outputs = _LOOPBACK if is_looped else None

    def _rule(self, packet: PacketState, frame: Frame) -> Next:
        """Apply the frame's next rule to a packet, or resume the rule before it."""
        first, packet.resume_step = packet.resume_step, 0
        if not first:
            packet.frame = Frame(frame.chain, frame.rules, frame.next + 1, frame.outer)
        item = frame.chain.rules[frame.rules[frame.next - 1 if first else frame.next]]
        for number in range(first, len(item.steps)):
            step = item.steps[number]
            if type(step) in EVALUATORS:
                if not self._passes(packet, item, self._actions.evaluate(packet, step)):
                    break
                continue
            if number == item.first_action:
                packet.trail = RuleHit(frame.chain.name, item.rule, packet.trail)
            packet.resume_step = number + 1
            following = self._actions.execute(packet, step)
            packet.resume_step = 0
            if following is not Next.STEP:
                return following
        return Next.RULE

    def _passes(self, packet: PacketState, item: IndexedRule, decision: Decision) -> bool:
        """Return whether a packet passes a test of a rule; split off the packets of its class that fail."""
        if not isinstance(decision, Split):
            return decision
        if item.jump_target is not None and self._actions.has_no_effect(packet, item.jump_target):
            return False  # the chain would return the packets unchanged
        self._actions.pending.append(packet.restricted_to(decision.failing))
        packet.fields = decision.passing
        return True

    def _through_servers(self, packet: PacketState) -> Next:
        """Send a packet to the real servers of the virtual server that it matches, unless IPVS sent it here."""
        if packet.server is not None or packet.fields.states <= _INVALID:
            return Next.RULE
        self._recorder.record(ServersQuery(self._servers, packet.protocol), packet.destination, packet.ports)
        for port, server in self._servers.at(packet.destination, packet.protocol).items():
            decision = EVALUATORS[Within](packet, Within(Field.DESTINATION_PORT, ((port, port),)))
            if decision is False:
                continue
            if decision is not True:
                rest = packet.restricted_to(decision.failing)
                rest.entry -= 1  # so that the rest enters this hook entry again
                self._actions.pending.append(rest)
                packet.fields = decision.passing
            sent = list(send_to_real_servers(packet, server, self._actions.affinity, self._is_local))
            rule = server_rule(server)
            for other in sent:
                target = Translate("dnat", single(other.destination), single(other.port or 0))
                other.trail = RuleHit(IPVS_CHAIN, rule, other.trail, (target,))
                if not other.is_local:
                    self._enter(other, self._stages.after_ipvs())
            self._actions.pending += sent
            if not sent:
                packet.trail = RuleHit(IPVS_CHAIN, rule, packet.trail, (Verdict("reject"),))
            return Next.STOP if sent else Next.REJECT
        return Next.RULE


def _reply(trail: RuleHit | None) -> str:
    """Return the reply of the rule that rejects packets, which is the last one that they hit."""
    steps = trail.rule.steps if trail is not None else ()
    return next((step.reply for step in steps if isinstance(step, Verdict) and step.kind == "reject"), "")


def _timeouts(rules: RuleSet) -> dict[str, int | None]:
    """Return the timeouts of dynamic collections: of the lookup in iptables, of the set in nftables."""
    timeouts = {name: collection.seconds for name, collection in rules.collections.items() if collection.is_dynamic}
    if timeouts:
        for chain in rules.chains.values():
            for rule in chain.rules:
                for step in rule.steps:
                    if isinstance(step, InSet) and step.seconds is not None and step.collection in timeouts:
                        timeouts[step.collection] = step.seconds
    return timeouts
