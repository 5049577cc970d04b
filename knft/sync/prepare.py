"""Preparing a sync: from what is known to the transaction that makes the table equal to it. Values in, values out."""

import itertools
from collections.abc import Iterable, Mapping

from msgspec import Struct

from knft.config import Config
from knft.delta.diff import ContentsDiff
from knft.model.names import ServicePortName
from knft.model.plan import ServicePlan
from knft.nft.expressions import Goto
from knft.nft.objects import Chain, Contents, Entry, Key
from knft.nft.transaction import Transaction
from knft.render import layout, names
from knft.render.fragment import EndpointOrders, Fragment, render_node, render_plan
from knft.render.numbering import Numbering, StickyPort, identity
from knft.render.pools import SharedChain, shared_chain, with_common_sizes, with_target_pools
from knft.render.sticky import sticky_port_record
from knft.sync.state import ServiceState
from knft.sync.table_snapshot import Owner, SpecialOwner, StickyPortRecord, TableSnapshot

Fragments = Mapping[Owner, Fragment | None]


class PreparedTransaction(Struct, frozen=True):
    """A transaction, and what it was made of.

    ``sticky`` are the sticky ports that it is about, by identity, None where one is forgotten; ``unsticky`` are Service
    ports whose affinity is left out, because every number is taken; ``failed`` those that could not be rendered at all.
    It ``sweeps`` where what nobody wants is removed. ``unwanted`` chains can be deleted after it: that is
    refused where somebody else's rule needs them, which is to stop nothing else.
    """

    desired: Fragments
    diff: ContentsDiff
    transaction: Transaction
    sticky: dict[str, StickyPort | None]
    without_affinity: tuple[ServicePortName, ...]
    render_errors: dict[ServicePortName, Exception]
    removes_unclaimed: bool
    deletable_chains: tuple[str, ...]

    def contents(self) -> dict[Owner, Contents | None]:
        """Return what each owner will have."""
        return _contents(self.desired)


def prepare_transaction(basis: TableSnapshot, state: ServiceState, config: Config, now: float) -> PreparedTransaction:
    """Return the transaction that turns ``basis`` into what ``state`` says; ``now`` is in seconds."""
    family = state.node.family
    rendering = _Rendering(basis, state, config, now)
    wanted = rendering.everything()
    if basis.is_full:
        basis.claim_unchanged_sticky_chains(wanted)
    changes = basis.programmed.diff(_contents(wanted))
    missing = _missing_shared(basis, wanted)
    ahead = _led_to(changes)
    transaction = Transaction(
        family.nft,
        names.TABLE,
        prepared_chains=(
            *(shared_chain(spec, family, config) for spec in missing),
            *(chain for chain in changes.new_chains if chain.name in ahead),
        ),
        chains=(
            *_missing_skeleton(basis, state, config),
            *(chain for chain in changes.new_chains if chain.name not in ahead),
            *changes.changed_chains,
            *(Chain(name) for name in changes.emptied_chains),
        ),
        removed={name: keys for name, keys in changes.removed.items() if name != names.HAIRPIN},
        added=changes.added,
        # A packet that was led to an endpoint before a commit looks here after it.
        deferred_removals={name: keys for name, keys in changes.removed.items() if name == names.HAIRPIN},
        deleted_chains=basis.outdated_chains,
    )
    numbering = rendering.numbering
    return PreparedTransaction(
        wanted,
        changes,
        transaction,
        numbering.changed,
        tuple(numbering.without_number),
        rendering.failed,
        rendering.sweeps,
        _long_unwanted(basis, changes, now),
    )


def _contents(wanted: Fragments) -> dict[Owner, Contents | None]:
    return {owner: fragment.contents if fragment is not None else None for owner, fragment in wanted.items()}


class _Rendering:
    """Everything that the owners of a basis want."""

    def __init__(self, basis: TableSnapshot, state: ServiceState, config: Config, now: float) -> None:
        self._basis = basis
        self._state = state
        self._config = config
        self._now = now
        self._orders = basis.programmed.merged_contents(basis.owners).arrays
        self.numbering = Numbering(basis.sticky, now)
        self.failed: dict[ServicePortName, Exception] = {}

    @property
    def sweeps(self) -> bool:
        """Whether what nobody wants goes; not while it is not known what somebody wants."""
        return self._basis.removes_unclaimed and not self.failed

    def everything(self) -> dict[Owner, Fragment | None]:
        """Return what each owner wants, in the order of names: the same objects give the same transaction."""
        wanted = self._owned(sorted(self._basis.owners, key=_order), self.numbering)
        spared = self._spared()
        if self._basis.is_full:
            self.numbering.retire_unassigned(spared.identities | set(map(identity, self.failed)))
        elif self._basis.sticky_gc:
            self.numbering.remove_expired()
        wanted |= _notes(self.numbering, wanted)
        found = self._basis.programmed.get(SpecialOwner.UNCLAIMED)
        if found is not None:
            kept = found.without(found.without(spared.contents)) if self.sweeps else found
            joined = _joined(wanted)
            left = kept.without(joined)
            left.members -= _replaced_ranges(left, joined)
            wanted[SpecialOwner.UNCLAIMED] = Fragment(left) if left != Contents.empty() else None
        return wanted

    def _owned(self, owners: Iterable[Owner], numbering: Numbering) -> dict[Owner, Fragment | None]:
        wanted: dict[Owner, Fragment | None] = {}
        for owner in owners:
            match owner:
                case SpecialOwner.NODE:
                    wanted[owner] = render_node(self._state.node, self._config)
                case ServicePortName():
                    self._render(owner, numbering, wanted)
                case _:
                    wanted[owner] = None
        return wanted

    def _render(self, name: ServicePortName, numbering: Numbering, wanted: dict[Owner, Fragment | None]) -> None:
        try:
            wanted[name] = _render_service_port(self._state, name, self._orders, numbering, self._config)
        except Exception as error:  # noqa: BLE001 - a mistake of knft's about one Service port is not all the others'
            self.failed[name] = error

    def _spared(self) -> "_Spared":
        """Return what the Service ports want that a full sync leaves as they are."""
        numbering, failed = Numbering(self._basis.sticky, self._now), dict(self.failed)
        wanted = self._owned(sorted(self._basis.preserved, key=_order), numbering)
        self.failed = failed  # Nobody tries these now.
        wanted |= _notes(numbering, wanted)
        contents = Contents.merged((_joined(wanted), self._basis.last_known))
        return _Spared(contents, frozenset(numbering.changed) | set(map(identity, self._basis.preserved)))


class _Spared(Struct, frozen=True):
    contents: Contents
    identities: frozenset[str]


def _joined(wanted: Fragments) -> Contents:
    return Contents.merged(fragment.contents for fragment in wanted.values() if fragment is not None)


def _replaced_ranges(found: Contents, wanted: Contents) -> set[tuple[str, Key]]:
    """Return the source ranges that were found for frontends that somebody wants: others may overlap them."""
    ranges = {member for member in found.members if member[0] == names.SOURCE_RANGES}
    if not ranges:
        return ranges
    frontends = {key for _, key in (*wanted.entries, *wanted.members)}
    return {member for member in ranges if member[1][:3] in frontends}


def _order(owner: Owner) -> tuple[str, ...]:
    match owner:
        case SpecialOwner():
            return (owner.value,)
        case StickyPortRecord():
            return (owner.identity,)
        case _:
            return tuple(owner)  # Its text lacks the protocol.


def _render_service_port(
    state: ServiceState, name: ServicePortName, orders: EndpointOrders, numbering: Numbering, config: Config
) -> Fragment | None:
    plan = state.plan(name)
    if plan is None or not plan.port.affinity_seconds:
        numbering.retire(name)
    if plan is None:
        return None
    return render_plan(plan, orders, _number(plan, numbering), state.node.family, config)


def _number(plan: ServicePlan, numbering: Numbering) -> StickyPort | None:
    """Return the numbers of a Service port with session affinity."""
    if not plan.port.affinity_seconds:
        return None
    targets = ((endpoint.address, endpoint.port) for endpoint in plan.endpoints.all_reachable)
    return numbering.assign(plan.name, targets, plan.port.affinity_seconds)


def _notes(numbering: Numbering, wanted: Fragments) -> dict[Owner, Fragment | None]:
    """Return the notes of the sticky ports that a sync is about; None where one is not needed any more."""
    chains = {
        fragment.sticky.identity: fragment.contents.chains
        for fragment in wanted.values()
        if fragment is not None and fragment.sticky is not None
    }
    return {
        StickyPortRecord(identity): Fragment(sticky_port_record(port, chains.get(identity, {})))
        if port is not None
        else None
        for identity, port in numbering.changed.items()
    }


def _missing_skeleton(basis: TableSnapshot, state: ServiceState, config: Config) -> tuple[Chain, ...]:
    if not basis.is_full:
        return ()
    chains = layout.skeleton(state.node.family, config)
    return tuple(chain for chain in chains if chain.name not in basis.programmed.chains)


def _missing_shared(basis: TableSnapshot, wanted: Fragments) -> list[SharedChain]:
    existing = basis.programmed.chains
    fragments = (fragment.chains for fragment in wanted.values() if fragment is not None)
    specs = itertools.chain.from_iterable(
        (*fragments, (part for spec in basis.stale_shared_chains for part in with_target_pools(spec)))
    )
    needed = {spec.name: spec for spec in specs if spec.name not in existing}
    return with_common_sizes(needed.values(), existing) if needed else []


def _led_to(changes: ContentsDiff) -> set[str]:
    """Return the new chains that packets are led to for good by new verdicts, of those whose rules are not shared.

    Packets that jump to one which is empty come back to rules that have them (layout, ``in-flight``).
    """
    made = {chain.name: chain for chain in changes.new_chains}
    values = (value for added in changes.added.values() for value in added.values())
    entries = (value.verdict for value in values if isinstance(value, Entry))
    to_follow = [verdict.chain for verdict in entries if isinstance(verdict, Goto)]
    found: set[str] = set()
    while to_follow:
        name = to_follow.pop()
        if name in made and name not in found:
            found.add(name)
            to_follow.extend(made[name].target_chains())
    return found


def _long_unwanted(basis: TableSnapshot, changes: ContentsDiff, now: float) -> tuple[str, ...]:
    """Return the chains that were emptied long enough ago."""
    written = {chain.name for chain in (*changes.changed_chains, *changes.new_chains)}
    unwanted = basis.programmed.emptied_chains.items()
    return tuple(name for name, waiting in unwanted if waiting.deletable_at < now and name not in written)
