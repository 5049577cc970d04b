"""A walker that also records the actions of each rule in the trail."""

from knft.interpret.ranges import Ranges, single
from knft.interpret.rules import (
    AddToSet,
    DnatMapLookup,
    RuleSet,
    SetMark,
    Step,
    Translate,
    Verdict,
)
from knft.interpret.walk.actions import Actions
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.lookups import LookupResult
from knft.interpret.walk.packet import Next, PacketState
from knft.interpret.walk.path_cache import AddressGroups
from knft.interpret.walk.walker import Walker


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
    """A walker whose trails include the actions of rules."""

    actions = _RecordingActions

    def __init__(self, rules: RuleSet, node_addresses: Ranges = (), indexes: Indexes | None = None) -> None:
        """Index a rule set."""
        super().__init__(rules, node_addresses, indexes)
        self._address_groups = _NoPathCache(rules, node_addresses)
