"""A walker that also records the actions of each rule in the trail."""

from knft.interpret.outcomes import Disposition, RuleHit
from knft.interpret.ranges import Ranges, single
from knft.interpret.rules import (
    AddToSet,
    DnatMapLookup,
    Rule,
    RuleSet,
    SetMark,
    Step,
    Translate,
    Verdict,
    VirtualServer,
)
from knft.interpret.walk.actions import Actions
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.lookups import LookupResult
from knft.interpret.walk.packet import Next, PacketState
from knft.interpret.walk.path_cache import AddressGroups
from knft.interpret.walk.walker import Walker

IPVS_CHAIN = "IPVS"
"""The chain name in the hits that stand for IPVS; the text of the rule describes the virtual server."""


class _RecordingActions(Actions):
    """Records each action in the trail, and removes rules from it whose lookup finds nothing."""

    def _verdict(self, packet: PacketState, verdict: Verdict) -> Next:
        _record(packet, verdict)
        return super()._verdict(packet, verdict)

    def _apply_element(self, packet: PacketState, result: LookupResult) -> Next:
        if result.element is None:
            _drop_inactive_rule(packet)
        return super()._apply_element(packet, result)

    def _set_mark(self, packet: PacketState, action: SetMark) -> Next:
        _record(packet, action)
        return super()._set_mark(packet, action)

    def _translate(self, packet: PacketState, action: Translate) -> Next:
        if action.kind == "snat" or action.to_interface_address:
            _record(packet, action)
        return super()._translate(packet, action)

    def _dnat_map_lookup(self, packet: PacketState, action: DnatMapLookup) -> Next:
        count = len(self.pending)
        following = super()._dnat_map_lookup(packet, action)
        misses = [other for other in self.pending[count:] if other.resume_with is Next.RULE]
        for miss in (*misses, *((packet,) if following is Next.RULE else ())):
            _drop_inactive_rule(miss)
        return following

    def _redirect(self, packet: PacketState, address: int, port: int | None) -> None:
        _record(packet, Translate("dnat", single(address), () if port is None else single(port)))
        super()._redirect(packet, address, port)

    def _add_to_set(self, packet: PacketState, action: AddToSet) -> Next:
        _record(packet, action)
        return super()._add_to_set(packet, action)


def _record(packet: PacketState, step: Step) -> None:
    if packet.trail is not None:
        packet.trail = packet.trail._replace(actions=(*packet.trail.actions, step))


def _drop_inactive_rule(packet: PacketState) -> None:
    """Remove the packet's current rule from its trail, unless the rule has carried out an action."""
    if packet.trail is not None and not packet.trail.actions:
        packet.trail = packet.trail.previous


class _NoPathCache(AddressGroups):
    """Disables the path cache, which does not store the recorded actions: no address belongs to a group."""

    def group(self, _: int) -> int | None:
        return None


class RecordingWalker(Walker):
    """A walker whose trails include the actions of rules, IPVS, and policies that drop."""

    actions = _RecordingActions

    def __init__(self, rules: RuleSet, node_addresses: Ranges = (), indexes: Indexes | None = None) -> None:
        """Index a rule set."""
        super().__init__(rules, node_addresses, indexes)
        self._address_groups = _NoPathCache(rules, node_addresses)

    def _end(self, packet: PacketState, disposition: Disposition) -> None:
        if disposition is Disposition.DROPPED and packet.frame is None:
            chain = packet.stage.entries[packet.entry].chain
            if chain is not None:
                packet.trail = RuleHit(chain.name, Rule((), "policy drop"), packet.trail, (Verdict("drop"),))
        super()._end(packet, disposition)

    def _through_servers(self, packet: PacketState) -> Next:
        if packet.server is not None:
            return super()._through_servers(packet)
        pending = self._actions.pending
        count, destination = len(pending), packet.destination
        following = super()._through_servers(packet)
        for other in pending[count:]:
            if other.server is not None and other.server.address == destination:
                target = Translate("dnat", single(other.destination), single(other.port or 0))
                other.trail = RuleHit(IPVS_CHAIN, _server_rule(other.server), other.trail, (target,))
        if following is Next.REJECT:
            text = "a virtual server without real servers"
            packet.trail = RuleHit(IPVS_CHAIN, Rule((), text), packet.trail, (Verdict("reject"),))
        return following


def _server_rule(server: VirtualServer) -> Rule:
    count = len(server.real_servers)
    return Rule((), f"virtual server, scheduler {server.scheduler}, {count} real server{'' if count == 1 else 's'}")
