"""Committed: what one family's table holds by all that is known, and the only place from which it is changed."""

import threading
from collections.abc import Callable, Sequence

from msgspec import structs

from knft.config import Config
from knft.delta.programmed import Programmed
from knft.errors import KernelError, UnavailableError
from knft.nft.objects import Contents
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.numbering import StickyPort, trusted
from knft.sync.audit import Place, Snapshot, differences, places
from knft.sync.basis import Basis, Owner, Part, TableState
from knft.sync.isolate import halve
from knft.sync.ports import TablePort
from knft.sync.prepare import Prepared, prepare
from knft.sync.state import ServiceState


class Committed:
    """What the last commit left; nothing is known after one that failed, until the table has been read back."""

    def __init__(self, config: Config, state: ServiceState, port: TablePort, timer: Callable[[], float]) -> None:
        """Know nothing yet; ``timer`` returns seconds, as the Proxier's."""
        self._config = config
        self._state = state
        self._port = port
        self._timer = timer
        self.programmed: Programmed[Owner] | None = None
        self.sticky: dict[str, StickyPort] = {}
        self.swept = True
        """Whether what nobody wanted is gone since the table was read back."""
        self.refused_cleanups = 0
        """How often what nobody wants could not be removed."""
        self._remembers = False
        """Whether ``sticky`` is what the kernel's notes say, unless somebody else has changed them."""
        self._audit = threading.Lock()
        self._touched: set[Place] | None = None
        self._odd_rules: dict[str, str] = {}
        """The digests of those rules that the last audit found to be other ones."""

    def give_up(self) -> Programmed[Owner] | None:
        """Return what is programmed, and know it no longer, until the next commit succeeds."""
        programmed, self.programmed = self.programmed, None
        return programmed

    def numbers(self, found: dict[str, StickyPort]) -> dict[str, StickyPort]:
        """Return the sticky ports as they are remembered; where a commit's fate is not known, as they were found."""
        return dict(self.sticky) if self._remembers else trusted(found, self.sticky)

    def commit(self, basis: Basis, now: float) -> tuple[Prepared, float]:
        """Make a transaction of what the owners of a basis want, and send it; return it, and the seconds it took.

        Raises KernelError where it is refused, and then what was known before is known again; UnavailableError where
        nobody knows what became of it: most likely nothing, so that this is what the next commit may stand on. Where
        only its late removals are refused, the rest is in force, and they are what nobody wants.
        """
        prepared = prepare(basis, self._state, self._config, now)
        started = self._timer()
        believed = self.give_up()
        # After what is programmed is given up: an audit that begins from here on sees that, and ends.
        with self._audit:
            if self._touched is not None:
                self._touched |= places(prepared.transaction) | {(name, ()) for name in prepared.unwanted}
        try:
            self._send(basis, prepared)
        except KernelError as error:
            self.programmed = believed
            self._remembers &= not isinstance(error, UnavailableError)
            raise
        self._adopt(basis, prepared, now)
        try:
            self._remove_late(basis, prepared.transaction)
        finally:
            self.programmed = basis.programmed
        self._delete_unwanted(basis.programmed, prepared, now)
        return prepared, self._timer() - started

    def _send(self, basis: Basis, prepared: Prepared) -> None:
        family, transaction = self._state.node.family, prepared.transaction
        match basis.table:
            case TableState.READY:
                if transaction.prepared_chains:
                    # A packet that entered before a commit finds its verdicts after it, and then the rules of before:
                    # none, where a chain is made together with what leads to it (Linux 6.18).
                    self._port.commit(transaction.prepare_phase())
                self._port.commit(transaction.main_phase())
            case TableState.MISSING:
                self._port.declare(layout.declarations(family))
                self._port.commit(transaction)
            case TableState.OTHER_LAYOUT:
                declared = layout.declarations(family)
                self._port.replace(layout.whole_table(declared, transaction, basis.memories()))

    def _adopt(self, basis: Basis, prepared: Prepared, now: float) -> None:
        programmed, transaction = basis.programmed, prepared.transaction
        programmed.adopt(prepared.contents())
        nothing_left = programmed.stored(Part.FOUND) is None
        self.swept = prepared.sweeps or nothing_left or (self.swept and not basis.full)
        programmed.note_emptied(prepared.changes, now)
        changes, sent = prepared.changes, (*transaction.prepared_chains, *transaction.chains)
        owned = {chain.name for chain in (*changes.written, *changes.made)} | set(changes.unwanted)
        programmed.chains.update(chain.name for chain in sent if chain.name not in owned)
        declared = layout.declarations(self._state.node.family)
        programmed.containers.update(container.name for container in declared.containers)
        for identity, sticky in prepared.sticky.items():
            if sticky is None:
                basis.sticky.pop(identity)
            else:
                basis.sticky[identity] = sticky
        self.sticky, self._remembers = basis.sticky, True

    def _remove_late(self, basis: Basis, transaction: Transaction) -> None:
        if not transaction.deferred_removals or basis.table is not TableState.READY:
            return
        try:
            self._port.commit(transaction.cleanup_phase())
        except KernelError:
            left = Contents.empty()
            left.members.update((name, key) for name, keys in transaction.deferred_removals.items() for key in keys)
            found = basis.programmed.stored(Part.FOUND)
            basis.programmed.adopt({Part.FOUND: left if found is None else Contents.merged((found, left))})
            self.swept = False
            raise

    def _delete_unwanted(self, programmed: Programmed[Owner], prepared: Prepared, now: float) -> None:
        """Delete the chains that nothing of knft's leads to, but for those that somebody else's rule needs."""
        nothing = Transaction(prepared.transaction.family, prepared.transaction.table)

        def delete_chains(names: Sequence[str]) -> None:
            self._port.commit(structs.replace(nothing, dropped=tuple(names)))
            programmed.note_deleted(names)

        kept = halve(prepared.unwanted, delete_chains)
        self.refused_cleanups += bool(kept)
        programmed.note_kept(kept, now)

    def audit(self, port: TablePort) -> set[Place] | None:
        """Return where the kernel, as ``port`` reads it, differs from what was committed; from any thread.

        None where a sync is under way or has failed: then nothing is compared. Raises KernelError where the table
        cannot be read.
        """
        with self._audit:
            self._touched = set()
        try:
            if not self._is_known():
                return None
            listing, snapshot = port.read(), self._snapshot()
        finally:
            with self._audit:
                touched, self._touched = self._touched, None
        if snapshot is None:
            return None
        found = differences(listing, snapshot, self._state.node.family, self._config) - (touched or set())
        # What was mended and is listed as before is how this library lists it.
        listed = {name: listing.rules.get(name, "") for name, key in found if not key} if listing is not None else {}
        usual = {name for name, rules in listed.items() if rules and self._odd_rules.get(name) == rules}
        self._odd_rules = listed
        return {(name, key) for name, key in found if key or name not in usual}

    def _is_known(self) -> bool:
        return self.programmed is not None

    def _snapshot(self) -> Snapshot | None:
        programmed = self.programmed
        if programmed is None:
            return None
        # What was found and is not wanted is as it should be only where it was kept on purpose.
        but = frozenset[Owner]() if self.swept else frozenset[Owner]({Part.FOUND})
        return Snapshot(programmed.everything(but), frozenset(programmed.chains))
