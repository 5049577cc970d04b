"""The transactions of knft's tables, from the kernel's notifications: those that ``nft monitor`` prints."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from knft.families import FAMILY_OF_NUMBER, Family
from knft.kernel.nftables_messages import NEW_GENERATION, Message, split, table_attribute
from knft.kernel.notifications import open_nftables_notifications
from knft.kernel.printable_names import printable_name
from knft.render import layout
from knft.render.names import HAIRPIN, NO_ENDPOINT_NODEPORTS, NO_ENDPOINT_SERVICES, SOURCE_RANGES, TABLE

_PASS_ALL = [(0x06, 0, 0, 0xFFFF_FFFF)]
_READ_BYTES = 1 << 16
_OBJECTS = ("table", "chain", "rule", "set", "element")
_NAME_ATTRIBUTES = (1, 3, 2, 2, 2)
"""The attribute with an object's name; for a rule its chain's, for an element its set's."""
_CHAIN_HOOK = 4

_ENDPOINT_SETS = layout.endpoint_map_names() | {HAIRPIN}
_DEFERRED_SETS = _ENDPOINT_SETS | {SOURCE_RANGES, NO_ENDPOINT_SERVICES, NO_ENDPOINT_NODEPORTS}


class Phase(Enum):
    """What a transaction does for packets: see docs/design/transaction-phases.md."""

    BEFORE = "before"
    """It creates what no packet can reach yet."""
    VISIBLE = "visible"
    """It changes what packets meet."""
    AFTER = "after"
    """It deletes what only packets in flight may still look up."""


class Change(NamedTuple):
    """One change of a transaction; ``name`` is that of the table, of a rule's chain, or of an element's set."""

    is_new: bool
    kind: str
    name: str
    has_hook: bool = False

    @classmethod
    def parse(cls, message: Message) -> "Change | None":
        """Return the change that a notification reports, None for a generation."""
        # Each kind of object has three numbers: new, get and deleted.
        place, action = divmod(message.kind & 0xFF, 3)
        if message.kind == NEW_GENERATION or place >= len(_OBJECTS):
            return None
        name = printable_name(message.attribute(_NAME_ATTRIBUTES[place]))
        kind = _OBJECTS[place]
        return cls(action == 0, kind, name, has_hook=kind == "chain" and bool(message.attribute(_CHAIN_HOOK)))


class TransactionLog:
    """The transactions in the current network namespace since its creation."""

    def __init__(self) -> None:
        """Subscribe: the kernel queues the notifications of a transaction before its commit returns."""
        self._socket = open_nftables_notifications(_PASS_ALL)
        self._table = table_attribute(TABLE)

    def close(self) -> None:
        """Unsubscribe."""
        self._socket.close()

    def take(self) -> dict[Family, list[Phase]]:
        """Return the phases of the transactions since the last call, by family."""
        phases: dict[Family, list[Phase]] = {family: [] for family in Family}
        changes: dict[Family, list[Change]] = {}
        for message in self._messages():
            if message.kind == NEW_GENERATION:
                for family, found in changes.items():
                    phases[family].append(phase_of(found))
                changes = {}
            elif message.attributes.startswith(self._table) and message.family in FAMILY_OF_NUMBER:
                change = Change.parse(message)
                changes.setdefault(FAMILY_OF_NUMBER[message.family], []).extend([change] if change else [])
        return phases

    def _messages(self) -> Iterator[Message]:
        with suppress(BlockingIOError):
            while True:
                yield from split(self._socket.recv(_READ_BYTES))


def phase_of(changes: Sequence[Change]) -> Phase:
    """Return the phase of a transaction with these changes."""
    created = {change.name for change in changes if change.is_new and change.kind == "chain"}
    if all(_prepares(change, created) for change in changes):
        return Phase.BEFORE
    return Phase.AFTER if all(map(_cleans_up, changes)) else Phase.VISIBLE


def _prepares(change: Change, created: set[str]) -> bool:
    """Tell whether no packet notices a change: a new object without a hook, a new chain's rule, or a new endpoint."""
    if not change.is_new or change.has_hook:
        return False
    names = {"rule": created, "element": _ENDPOINT_SETS}.get(change.kind)
    return names is None or change.name in names


def _cleans_up(change: Change) -> bool:
    """Tell whether a change deletes a chain, or an element that only packets in flight may still look up."""
    is_deferred = change.kind == "element" and change.name in _DEFERRED_SETS
    return not change.is_new and (change.kind == "chain" or is_deferred)
