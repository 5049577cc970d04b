"""TableWriter: owns the known state of one family's table, and is the only writer of the table."""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from knft.config import Config
from knft.delta.programmed import ProgrammedContents
from knft.errors import KernelError, UnavailableError
from knft.model.names import ServicePortName
from knft.nft.codec.listing import TableListing
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import ArrayName, Container, Contents, Entry, Key, Table, Value
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import CLIENTS, COUNTER_SETS, HAIRPIN, TABLE
from knft.render.wide import is_for_hashing
from knft.sync.audit import (
    ExpectedContents,
    TablePosition,
    chains_with_other_listing_format,
    changed_positions,
    find_differences,
    listed_rules,
)
from knft.sync.earlier_affinity import former_clients, former_ids, has_earlier_affinity
from knft.sync.foreign_objects import find_foreign_objects
from knft.sync.prepare import MAX_ELEMENTS, MAX_NEW_RULES, PreparedTransaction, prepare_transaction
from knft.sync.quarantine import bisect
from knft.sync.state import ServiceState
from knft.sync.table_interface import TableInterface
from knft.sync.table_snapshot import Owner, SpecialOwner, TableSnapshot, TableState

ENDPOINT_SETS = frozenset({HAIRPIN}) | COUNTER_SETS
"""Sets with an element for each endpoint or each frontend, which may be added before verdicts lead to endpoints."""

_IN_USE = "Device or resource busy"  # EBUSY in libnftables' messages


class TableWriter:
    """Commits transactions and records the resulting contents; after a failed commit, the table must be read back."""

    def __init__(self, config: Config, state: ServiceState, table: TableInterface, clock: Callable[[], float]) -> None:
        """Start without known contents; ``clock`` returns seconds, as the Proxier's."""
        self._config = config
        self._state = state
        self._table = table
        self._clock = clock
        self.programmed: ProgrammedContents[Owner] | None = None
        self.wide: dict[ServicePortName, int] = {}
        """The numbers of the wide Service ports."""
        self.orphans_removed = True
        """Whether all unclaimed contents were removed, except those that are to stay (of quarantined Service ports, or
        because not all objects are known)."""
        self.refused_removals = 0
        """How often a removal of orphans, or a deletion of emptied chains, was refused, wholly or in part."""
        self.has_unrecorded_endpoints = False
        """Whether the kernel refused a transaction of which it had accepted endpoints before."""
        self.committed_at = 0.0
        """When the kernel accepted the last rules; requests after that only delete unused objects."""
        self._deletes_later = False
        """Whether chains are emptied in the main phase and deleted later, because the kernel refused to delete them."""
        self._audit_lock = threading.Lock()
        self._changed_by_syncs: set[TablePosition] | None = None
        self._unexpected_rules: dict[str, str] = {}
        """The digests of the rules of chains that differed in the last audit."""

    def detach_programmed(self) -> ProgrammedContents[Owner] | None:
        """Return the programmed contents and mark them unknown until the next commit succeeds."""
        programmed, self.programmed = self.programmed, None
        return programmed

    def hashed_service_port_count(self) -> int:
        """Return how many Service ports have tables of hashes; from any thread."""
        return sum(map(is_for_hashing, tuple(self.wide.values())))

    def current_wide_numbers(self, found: dict[ServicePortName, int]) -> dict[ServicePortName, int]:
        """Return the recorded numbers of wide Service ports, and those of ``found`` that are not in use."""
        taken = set(self.wide.values())
        return {name: number for name, number in found.items() if number not in taken} | self.wide

    def commit(
        self, snapshot: TableSnapshot, now: float, max_rules: float = math.inf
    ) -> tuple[PreparedTransaction, float]:
        """Render the owners of a snapshot, send the transaction, and return it and the seconds that libnftables took.

        As soon as it has ``max_rules`` rules of chains of Service ports, the other sticky Service ports are postponed.
        Raises KernelError if the kernel refuses it: ``programmed`` is then as before. (Chains and endpoints of earlier
        phases that were committed stay in the kernel and are not recorded.) Raises UnavailableError if it is unknown
        whether it was committed: ``programmed`` is then as before, too, and the caller must read the table back. Raises
        KernelError also if only the deferred removals are refused: the rest is then in force and recorded, and the
        elements that they should have removed become orphans.
        """
        prepared = prepare_transaction(snapshot, self._state, self._config, now, max_rules)
        started = self._clock()
        previous = self.detach_programmed()
        # Only after detach_programmed: an audit that starts from here on finds no contents, and ends.
        with self._audit_lock:
            if self._changed_by_syncs is not None:
                self._changed_by_syncs |= changed_positions(prepared.transaction) | {
                    (name, ()) for name in prepared.deletable_chains
                }
        unrecorded = self.has_unrecorded_endpoints
        try:
            deleted_chains = self._send(snapshot, prepared)
        except KernelError:
            self.programmed = previous
            raise
        self.committed_at = self._clock()
        self.has_unrecorded_endpoints = unrecorded
        self._record_commit(snapshot, prepared, now)
        snapshot.programmed.record_deleted(deleted_chains)
        waited = self._wait_for_packets() if prepared.waits_for_packets and snapshot.table is TableState.READY else 0.0
        try:
            self._remove_deferred(snapshot, prepared.transaction)
        finally:
            self.programmed = snapshot.programmed
        self._delete_emptied_chains(snapshot.programmed, prepared, now)
        return prepared, self._clock() - started - waited

    def commit_nothing(self, programmed: ProgrammedContents[Owner]) -> None:
        """Claim the table, if it has an owner, and record that it still has the contents that were detached.

        Raises KernelError as ``commit`` does.
        """
        self._table.commit(Transaction(self._state.node.family.nft, TABLE))
        self.programmed = programmed

    def _send(self, snapshot: TableSnapshot, prepared: PreparedTransaction) -> tuple[str, ...]:
        """Send the phases up to the main phase; return the chains that it deleted."""
        family, transaction = self._state.node.family, prepared.transaction
        endpoints, main = transaction.main_phase().split_endpoints(MAX_ELEMENTS, ENDPOINT_SETS)
        former = self._former_clients(snapshot, prepared)
        match snapshot.table:
            case TableState.READY:
                self._declare_hashed_maps(transaction, snapshot.programmed.containers)
                # A packet that entered the base chain before a commit sees new map elements but old rules. If a chain
                # were created in the same commit as the element that leads to it, it would have none (6.18).
                for piece in transaction.new_chains_phase(MAX_NEW_RULES):
                    self._table.commit(piece)
                self._send_endpoints(endpoints)
                for piece in Transaction(family.nft, TABLE, added={CLIENTS: former}).addition_pieces(MAX_ELEMENTS):
                    self._table.commit(piece)
                return self._commit_main(main)
            case TableState.MISSING if transaction.new_chains:
                self._table.declare(self._declarations(transaction))
                for piece in transaction.new_chains_phase(MAX_NEW_RULES):
                    self._table.commit(piece)
                self._send_endpoints(endpoints)
                self._table.commit(main)
            case TableState.MISSING:
                self._table.create(self._declarations(transaction), transaction)
            case TableState.INCOMPATIBLE:
                clients = self._table.dynamic_elements().get(CLIENTS, {})
                known = {key: value for key, value in clients.items() if _is_client(key)}
                declarations = self._declarations(transaction)
                self._table.replace(layout.whole_table(declarations, transaction, {CLIENTS: known | former}))
        return ()

    def _declare_hashed_maps(self, transaction: Transaction, existing: set[str]) -> None:
        """Declare the maps that the first Service port with consistent hashing needs."""
        if layout.uses_hashing(transaction) and not existing >= layout.HASHED_MAPS:
            self._table.declare(self._declarations(transaction))

    def _declarations(self, transaction: Transaction) -> Table:
        """Return the declarations of the sets and maps that the table needs for a transaction."""
        return layout.declarations(self._state.node.family, self._config, hashing=layout.uses_hashing(transaction))

    def _former_clients(self, snapshot: TableSnapshot, prepared: PreparedTransaction) -> dict[Key, Value]:
        """Return the clients with session affinity that are in the table of an earlier version, before the switch."""
        found = snapshot.unclaimed
        if found is None or not has_earlier_affinity(found):
            return {}
        ids = former_ids(found, (contents for contents in prepared.contents().values() if contents is not None))
        return former_clients(found, ids, self._table.dynamic_elements()) if ids else {}

    def _commit_main(self, main: Transaction) -> tuple[str, ...]:
        """Commit the main phase and return the chains that it deleted.

        If the kernel says that a chain is in use, commit it without the deletion of chains, and do not delete chains
        in a main phase again: kernels before 6.2 refuse to delete a chain together with the last element that leads to
        it, and all refuse it if a foreign rule leads to the chain.
        """
        without_deletions = structs.replace(main, deleted_chains=())
        if not main.deleted_chains or self._deletes_later:
            self._table.commit(without_deletions)
            return ()
        try:
            self._table.commit(main)
        except UnavailableError:
            raise
        except KernelError as error:
            if _IN_USE not in f"{error} {error.detail}":
                raise
            self._table.commit(without_deletions)
            self._deletes_later = True
            return ()
        return main.deleted_chains

    def _send_endpoints(self, endpoints: Transaction) -> None:
        for piece in endpoints.addition_pieces(MAX_ELEMENTS):
            self.has_unrecorded_endpoints = True
            self._table.commit(piece)

    def _record_commit(self, snapshot: TableSnapshot, prepared: PreparedTransaction, now: float) -> None:
        programmed, transaction = snapshot.programmed, prepared.transaction
        programmed.apply(prepared.contents())
        nothing_left = programmed.get(SpecialOwner.UNCLAIMED) is None
        self.orphans_removed = (
            prepared.removes_unclaimed
            or nothing_left
            or snapshot.holds_removals
            or (self.orphans_removed and not snapshot.is_full)
        )
        programmed.record_chain_changes(prepared.diff, prepared.emptied_chains, now)
        changes, sent = prepared.diff, (*transaction.new_chains, *transaction.chains)
        owned = {chain.name for chain in (*changes.changed_chains, *changes.new_chains)} | set(prepared.emptied_chains)
        written = [chain.name for chain in sent if chain.name not in owned]
        programmed.chains.update(written)
        programmed.record_deleted(written)
        programmed.chains.difference_update(prepared.emptied_chains)
        if layout.uses_hashing(transaction):
            programmed.containers |= layout.HASHED_MAPS
        for name, number in prepared.wide.items():
            if number is None:
                self.wide.pop(name, None)
            else:
                self.wide[name] = number

    def _wait_for_packets(self) -> float:
        """Wait until the kernel has finished the packets that read old verdicts; return how many seconds that took."""
        started = self._clock()
        self._table.wait_for_packets()
        return self._clock() - started

    def _remove_deferred(self, snapshot: TableSnapshot, transaction: Transaction) -> None:
        if snapshot.table is not TableState.READY:
            return
        pieces = transaction.cleanup_phase(MAX_ELEMENTS)
        sent = 0
        try:
            for piece in pieces:
                self._table.commit(piece)
                sent += 1
        except KernelError:
            declared = layout.containers(self._state.node.family, self._config, hashing=True)
            refused = _removed_contents(pieces[sent:], declared)
            unclaimed = snapshot.programmed.get(SpecialOwner.UNCLAIMED)
            snapshot.programmed.apply(
                {SpecialOwner.UNCLAIMED: refused if unclaimed is None else Contents.merged((unclaimed, refused))}
            )
            self.orphans_removed = False
            raise

    def _delete_emptied_chains(
        self, programmed: ProgrammedContents[Owner], prepared: PreparedTransaction, now: float
    ) -> None:
        """Delete the chains that nothing of knft refers to, except those that a foreign rule refers to."""
        nothing = Transaction(prepared.transaction.family, prepared.transaction.table)

        def delete_chains(names: Sequence[str]) -> None:
            self._table.commit(structs.replace(nothing, deleted_chains=tuple(names)))
            programmed.record_deleted(names)

        refused = bisect(prepared.deletable_chains, delete_chains)
        self.refused_removals += bool(refused)
        programmed.record_refused_deletions(refused, now)

    def audit(self, table: TableInterface) -> set[TablePosition] | None:
        """Compare the kernel, as read through ``table``, with what was committed; return the differences. Any thread.

        Returns None, without comparing, if a sync is running or failed. Raises KernelError if the table cannot be read.
        """
        with self._audit_lock:
            self._changed_by_syncs = set()
        try:
            if not self._has_known_contents():
                return None
            listing, snapshot = table.read(), self._expected_contents()
        finally:
            with self._audit_lock:
                changed_meanwhile, self._changed_by_syncs = self._changed_by_syncs, None
        if snapshot is None:
            return None
        family, config = self._state.node.family, self._config
        differences = find_differences(listing, snapshot, family, config) - (changed_meanwhile or set())
        listed = listed_rules(listing, differences)
        differences -= chains_with_other_listing_format(listed, self._unexpected_rules)
        self._unexpected_rules = listed
        foreign = find_foreign_objects(listing, family, config).all if listing is not None else frozenset()
        return differences | {(str(each), ()) for each in foreign}

    def differences(self, listing: TableListing | None, rules_before: Mapping[str, str]) -> set[TablePosition]:
        """Compare a listing with what the last sync left; only between syncs, in their thread.

        ``rules_before`` are the digests of the rules that the sync found, by chain. Foreign objects do not count.
        """
        expected = self._expected_contents()
        if expected is None:
            return set()
        differences = find_differences(listing, expected, self._state.node.family, self._config)
        return differences - chains_with_other_listing_format(listed_rules(listing, differences), rules_before)

    def element_count(self) -> int | None:
        """Return how many elements knft has programmed, None while a sync runs or after a failure; from any thread."""
        programmed = self.programmed
        return programmed.element_count() if programmed is not None else None

    def target_chains(self) -> set[str]:
        """Return the chains to which elements lead that the last sync left in the table."""
        contents = self.programmed.all_contents() if self.programmed is not None else Contents.empty()
        verdicts = (entry.verdict for entry in contents.entries.values())
        return {verdict.chain for verdict in verdicts if isinstance(verdict, Goto | Jump)}

    def _has_known_contents(self) -> bool:
        return self.programmed is not None

    def _expected_contents(self) -> ExpectedContents | None:
        programmed = self.programmed
        if programmed is None:
            return None
        # Unclaimed contents are expected in the kernel only if they are preserved and not orphaned.
        excluded = frozenset[Owner]() if self.orphans_removed else frozenset[Owner]({SpecialOwner.UNCLAIMED})
        return ExpectedContents(programmed.all_contents(excluded), frozenset(programmed.chains))


def _is_client(key: Key) -> bool:
    """Return whether a key of the set of clients has the form that knft's rules write; other programs may change it."""
    match key:
        case (str(), int()):
            return True
        case _:
            return False


def _removed_contents(pieces: Iterable[Transaction], declared: Iterable[Container]) -> Contents:
    """Return the elements that pieces of a cleanup phase remove; the values of map elements are unknown."""
    contents = Contents.empty()
    containers = {container.name: container for container in declared}
    arrays: dict[ArrayName, set[int]] = {}
    for container, keys in (removed for piece in pieces for removed in piece.removed.items()):
        for key in keys:
            if containers[container].data == "verdict":
                contents.entries[container, key] = Entry(Goto(""))
            elif containers[container].is_map:
                arrays.setdefault(ArrayName(container, key[:-1]), set()).add(int(key[-1]))
            else:
                contents.members.add((container, key))
    for name, indexes in arrays.items():
        contents.arrays[name] = tuple(("", 0) if index in indexes else None for index in range(max(indexes) + 1))
    return contents
