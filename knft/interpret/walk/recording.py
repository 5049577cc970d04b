"""Walks packets as ``walker`` does, and records in their trails what each rule did to them."""

from knft.interpret.outcomes import Fate, Passed
from knft.interpret.ranges import Ranges, single
from knft.interpret.rules import Remember, Rule, RuleSet, Server, SetMark, Step, Translate, TranslateBy, Verdict
from knft.interpret.walk.actions import Actions
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.known import Unmentioned
from knft.interpret.walk.lookups import Found
from knft.interpret.walk.packet import Next, Packet
from knft.interpret.walk.walker import Walker

SERVERS = "IPVS"
"""Stands for a chain's name where IPVS sends a packet; the rule's text names the virtual server."""


class _RecordedActions(Actions):
    """Notes each action in the trail, and takes rules out of it that turn out to do nothing."""

    def _verdict(self, packet: Packet, verdict: Verdict) -> Next:
        _note(packet, verdict)
        return super()._verdict(packet, verdict)

    def _follow(self, packet: Packet, found: Found) -> Next:
        if found.element is None:
            _forget(packet)
        return super()._follow(packet, found)

    def _set_mark(self, packet: Packet, action: SetMark) -> Next:
        _note(packet, action)
        return super()._set_mark(packet, action)

    def _translate(self, packet: Packet, action: Translate) -> Next:
        if action.what == "snat" or action.to_self:
            _note(packet, action)
        return super()._translate(packet, action)

    def _translate_by(self, packet: Packet, action: TranslateBy) -> Next:
        others = len(self.waiting)
        following = super()._translate_by(packet, action)
        missed = [other for other in self.waiting[others:] if other.pending is Next.RULE]
        for each in (*missed, *((packet,) if following is Next.RULE else ())):
            _forget(each)
        return following

    def _redirect(self, packet: Packet, address: int, port: int | None) -> None:
        _note(packet, Translate("dnat", single(address), () if port is None else single(port)))
        super()._redirect(packet, address, port)

    def _remember(self, packet: Packet, action: Remember) -> Next:
        _note(packet, action)
        return super()._remember(packet, action)


def _note(packet: Packet, step: Step) -> None:
    if packet.trail is not None:
        packet.trail = packet.trail._replace(did=(*packet.trail.did, step))


def _forget(packet: Packet) -> None:
    """Take the rule that the packet is in out of its trail, unless it has done something before."""
    if packet.trail is not None and not packet.trail.did:
        packet.trail = packet.trail.before


class _EachForItself(Unmentioned):
    """Has every way walked to its end: of what is known of others' ways, only the rules are kept."""

    def group(self, _: int) -> int | None:
        return None


class RecordingWalker(Walker):
    """A walker whose trails tell everything: what rules did, what IPVS did, and what a policy dropped."""

    actions = _RecordedActions

    def __init__(self, rules: RuleSet, own: Ranges = (), indexes: Indexes | None = None) -> None:
        """Prepare a rule set."""
        super().__init__(rules, own, indexes)
        self._unmentioned = _EachForItself(rules, own)

    def _end(self, packet: Packet, fate: Fate) -> None:
        if fate is Fate.DROPPED and packet.frame is None:
            chain = packet.stage.stops[packet.stop].chain
            if chain is not None:
                packet.trail = Passed(chain.name, Rule((), "policy drop"), packet.trail, (Verdict("drop"),))
        super()._end(packet, fate)

    def _through_servers(self, packet: Packet) -> Next:
        if packet.server is not None:
            return super()._through_servers(packet)
        waiting = self._actions.waiting
        others, destination = len(waiting), packet.destination
        following = super()._through_servers(packet)
        for other in waiting[others:]:
            if other.server is not None and other.server.address == destination:
                target = Translate("dnat", single(other.destination), single(other.port or 0))
                other.trail = Passed(SERVERS, _rule_of(other.server), other.trail, (target,))
        if following is Next.REJECT:
            text = "a virtual server without real servers"
            packet.trail = Passed(SERVERS, Rule((), text), packet.trail, (Verdict("reject"),))
        return following


def _rule_of(server: Server) -> Rule:
    count = len(server.targets)
    return Rule((), f"virtual server, scheduler {server.scheduler}, {count} real server{'' if count == 1 else 's'}")
