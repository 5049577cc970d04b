"""Walks packets through a rule set."""

from collections.abc import Hashable, Iterator
from copy import copy
from fractions import Fraction

from knft.interpret.outcomes import (
    Fate,
    Memory,
    NewSource,
    Outcome,
    Packets,
    Passed,
    Path,
    overlap,
    rules_of,
    with_rules,
)
from knft.interpret.ranges import Ranges, contains
from knft.interpret.rules import Field, InSet, RuleSet, Within
from knft.interpret.walk.actions import Actions
from knft.interpret.walk.index import IndexedRule, Indexes
from knft.interpret.walk.known import Ending, Unmentioned, state_of, whole_box
from knft.interpret.walk.packet import Frame, Next, Packet
from knft.interpret.walk.servers import AtServers, ServerTable, sent
from knft.interpret.walk.stages import IPVS, Stage, Stages
from knft.interpret.walk.tests import DECIDE, Decision, Split

_LOOPBACK = frozenset({"lo"})
_NO_INTERFACE = frozenset({""})
_ARRIVING = ("prerouting", "input")
_NOT_FOR_NAT = frozenset({"invalid"})
_FATES = {Next.DROP: Fate.DROPPED, Next.REJECT: Fate.REJECTED, Next.UNKNOWN: Fate.UNDECIDED}


class Walker:
    """A rule set that packets can be sent through, any number of them.

    ``own`` are the addresses that the node has, as far as they are known. ``indexes`` may be shared by walkers whose
    rule sets are parts of one another.
    """

    actions: type[Actions] = Actions
    """What carries out the rules' steps."""

    def __init__(self, rules: RuleSet, own: Ranges = (), indexes: Indexes | None = None) -> None:
        """Prepare a rule set."""
        indexes = indexes or Indexes()
        self._journal = indexes.journal
        chains = {name: indexes.of_chain(chain) for name, chain in rules.chains.items()}
        collections = {name: indexes.of_collection(item) for name, item in rules.collections.items()}
        self._own = own
        self._bound, self._binds_sources = rules.bound, rules.binds_sources
        self._stages = Stages(rules, chains)
        self._actions = self.actions(chains, collections, _seconds(rules), self._is_local, indexes.journal)
        self._servers = ServerTable(rules.servers)
        self._unmentioned = Unmentioned(rules, own)
        self._known: dict[Hashable, list[Ending]] = {}
        self._version = rules.version
        self._endings: list[Ending] = []

    def paths(self, packets: Packets, memory: frozenset[Memory] = frozenset()) -> list[Path]:
        """Return all ways that packets go; at each point of their box the shares sum to one.

        ``memory`` is what the rule set's collections know of the client beforehand.
        """
        self._actions.memory = memory
        return [self._path(ending) for ending in self._walked(self._sent(packets))]

    def targets(self) -> set[int]:
        """Return where packets have been sent instead of where they went, since this was asked last."""
        found, self._actions.targets = self._actions.targets, set()
        return found

    def _walked(self, packet: Packet) -> list[Ending]:
        """Follow a packet to all its ends; called again for the rest of ways on which it is."""
        outer, self._endings = self._endings, []
        waiting, self._actions.waiting = self._actions.waiting, [packet]
        while self._actions.waiting:
            self._go_on(self._actions.waiting.pop())
        found, self._endings = self._endings, outer
        self._actions.waiting = waiting
        return found

    def _is_local(self, address: int) -> bool:
        return contains(self._own, address) or contains(self._bound, address)

    def _sent(self, packets: Packets) -> Packet:
        packet = Packet(
            box=packets.box,
            origin=packets.origin,
            protocol=packets.protocol,
            destination=packets.destination,
            original=packets.destination,
            is_local=packets.is_local,
            stage=self._stages.first(packets.origin),
        )
        if contains(self._bound, packets.destination):
            packet.is_local = True
            if packets.origin == "node" and self._binds_sources and contains(packets.box.sources, packets.destination):
                packet.source = packets.destination  # what the kernel chooses towards an address that it has
        self._enter(packet, packet.stage)
        return packet

    def _go_on(self, packet: Packet) -> None:
        """Follow a packet until it ends, or others wait in its place."""
        following, packet.pending = packet.pending, Next.RULE
        while following not in _FATES and following is not Next.GONE:
            frame = packet.frame
            if following is Next.POLICY:
                packet.frame = None
                following = Next.DROP if packet.stage.stops[packet.stop].policy == "drop" else Next.RULE
            elif following is Next.STOP:
                packet.frame, following = None, Next.RULE
            elif frame is None:
                following = self._next_stop(packet)
            elif packet.resume or frame.next < len(frame.rules):
                following = self._rule(packet, frame)
            elif frame.outer is None:
                following = Next.POLICY
            else:
                packet.frame = frame.outer
        if following in _FATES:
            self._end(packet, _FATES[following])

    def _end(self, packet: Packet, fate: Fate) -> None:
        self._endings.append(Ending(packet, fate, ()))

    def _path(self, ending: Ending) -> Path:
        packet, fate, rules = ending
        outcome = self._delivered(packet) if fate is Fate.DELIVERED else Outcome(fate)
        trail = with_rules(packet.trail, rules)
        return Path(packet.box, packet.share, outcome, trail, packet.looked_up, packet.remembered)

    def _delivered(self, packet: Packet) -> Outcome:
        source: NewSource = "kept" if packet.source is None else "frontend"
        if packet.new_source is not None:
            source = packet.new_source
        seconds = packet.seconds if packet.server is None else packet.server.seconds
        if not packet.is_redirected:
            return Outcome(Fate.DELIVERED, None, None, source, seconds)
        return Outcome(Fate.DELIVERED, packet.destination, packet.port, source, seconds)

    def _next_stop(self, packet: Packet) -> Next:
        packet.stop += 1
        if packet.stop >= len(packet.stage.stops):
            return self._next_stage(packet)
        stop = packet.stage.stops[packet.stop]
        if stop.kind == IPVS:
            return self._through_servers(packet)
        packet.in_nat = stop.kind == "nat"
        packet.is_tracked = packet.stage.again or not stop.is_early
        if stop.chain is not None and (not packet.in_nat or self._is_for_nat(packet)):
            packet.frame = Frame(stop.chain, stop.chain.concerning(packet), 0, None)
        return Next.RULE

    def _is_for_nat(self, packet: Packet) -> bool:
        """Tell whether nat chains look at the packet; split off what they do not look at."""
        stage = packet.stage
        is_over = packet.is_redirected if stage.hook in ("prerouting", "output") else packet.new_source is not None
        states = packet.box.states
        if stage.again or is_over or states <= _NOT_FOR_NAT:
            return False
        if states & _NOT_FOR_NAT:
            self._actions.waiting.append(packet.within(packet.box._replace(states=states & _NOT_FOR_NAT)))
            packet.box = packet.box._replace(states=states - _NOT_FOR_NAT)
        return True

    def _next_stage(self, packet: Packet) -> Next:
        stage = self._stages.after(packet.stage, is_local=packet.is_local, origin=packet.origin)
        if stage is None:
            self._end(packet, Fate.DELIVERED)
            return Next.GONE
        self._enter(packet, stage)
        group = self._unmentioned.group(packet.destination) if packet.is_redirected else None
        if group is None:
            return Next.RULE
        self._end_as_known(packet, group)
        return Next.GONE

    def _end_as_known(self, packet: Packet, group: int) -> None:
        """End a packet as others of the same state have ended, whatever their boxes."""
        state = state_of(packet, group, self._actions.memory)
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = list(self._rest_of_way(packet))
        for rest, fate, rules in known:
            box = overlap(packet.box, rest.box)
            if box is None:
                continue
            ended = copy(packet)
            ended.box = box
            ended.share = packet.share * rest.share
            ended.new_source = rest.new_source
            ended.looked_up |= rest.looked_up
            ended.remembered |= rest.remembered
            self._endings.append(Ending(ended, fate, rules))

    def _rest_of_way(self, packet: Packet) -> Iterator[Ending]:
        """Yield how packets of every box end that are where this one is."""
        probe = copy(packet)
        probe.box, probe.share, probe.trail = whole_box(self._version, packet), Fraction(1), None
        probe.looked_up = probe.remembered = frozenset()
        for ended, fate, rules in self._walked(probe):
            yield Ending(ended, fate, (*rules_of(ended.trail), *rules))

    def _enter(self, packet: Packet, stage: Stage) -> None:
        packet.stage, packet.stop, packet.frame = stage, -1, None
        is_looped = packet.origin == "node" and packet.is_local
        if stage.hook in _ARRIVING:
            packet.inputs, packet.outputs = _LOOPBACK if packet.origin == "node" else None, _NO_INTERFACE
        else:
            packet.inputs = _NO_INTERFACE if stage.hook == "output" else None
            packet.outputs = _LOOPBACK if is_looped else None

    def _rule(self, packet: Packet, frame: Frame) -> Next:
        """Have a packet meet its frame's next rule, or go on in the one before."""
        first, packet.resume = packet.resume, 0
        if not first:
            packet.frame = Frame(frame.chain, frame.rules, frame.next + 1, frame.outer)
        item = frame.chain.rules[frame.rules[frame.next - 1 if first else frame.next]]
        for number in range(first, len(item.steps)):
            step = item.steps[number]
            if type(step) in DECIDE:
                if not self._passes(packet, item, self._actions.decide(packet, step)):
                    break
                continue
            if number == item.first_action:
                packet.trail = Passed(frame.chain.name, item.rule, packet.trail)
            packet.resume = number + 1
            following = self._actions.do(packet, step)
            packet.resume = 0
            if following is not Next.STEP:
                return following
        return Next.RULE

    def _passes(self, packet: Packet, item: IndexedRule, decision: Decision) -> bool:
        """Tell whether a packet passes a test of a rule; split off those of its class that do not."""
        if not isinstance(decision, Split):
            return decision
        if item.leads_to is not None and self._actions.is_idle(packet, item.leads_to):
            return False  # whoever goes there comes back as he was
        self._actions.waiting.append(packet.within(decision.failing))
        packet.box = decision.passing
        return True

    def _through_servers(self, packet: Packet) -> Next:
        """Have IPVS look at a packet that it has not sent itself."""
        if packet.server is not None or packet.box.states <= _NOT_FOR_NAT:
            return Next.RULE
        question = AtServers(self._servers, packet.protocol)
        self._journal.note(question, packet.destination, packet.ports)
        for port, server in self._servers.at(packet.destination, packet.protocol).items():
            decision = DECIDE[Within](packet, Within(Field.DESTINATION_PORT, ((port, port),)))
            if decision is False:
                continue
            if decision is not True:
                rest = packet.within(decision.failing)
                rest.stop -= 1  # so that they come to this stop again
                self._actions.waiting.append(rest)
                packet.box = decision.passing
            others = list(sent(packet, server, self._actions.memory, self._is_local))
            for other in others:
                if not other.is_local:
                    self._enter(other, self._stages.sent_on())
            self._actions.waiting += others
            return Next.GONE if others else Next.REJECT
        return Next.RULE


def _seconds(rules: RuleSet) -> dict[str, int | None]:
    """Return for how long collections remember; iptables says it where it looks, nftables where it writes."""
    found = {name: collection.seconds for name, collection in rules.collections.items() if collection.remembers}
    if found:
        for chain in rules.chains.values():
            for rule in chain.rules:
                for step in rule.steps:
                    if isinstance(step, InSet) and step.seconds is not None and step.collection in found:
                        found[step.collection] = step.seconds
    return found
