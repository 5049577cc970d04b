"""Proxier: one family's way from changed objects to a committed transaction.

    ServiceState ──check out──▶ plan ──▶ render ──▶ compare ──▶ commit ──▶ adopt

After a failed commit nothing is known of the table: the next sync reads it back and compares everything.
"""

import itertools
from collections.abc import Callable, Mapping

from msgspec import Struct

from knft.config import Config
from knft.delta.contents import Changes
from knft.delta.programmed import Programmed
from knft.model.names import Family, ServicePortName
from knft.model.plan import ServicePlan
from knft.nft.objects import Chain, Contents
from knft.nft.transaction import Transaction
from knft.render import layout, names
from knft.render.fragment import Fragment, Orders, render_node, render_plan
from knft.render.pools import shared_chain, with_common_sizes, with_pools
from knft.render.sticky import StickyPort, assign, free_number, identity
from knft.sync.basis import Basis, Owner, Part, TableState, basis_from_listing
from knft.sync.ports import TablePort
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState, Work

FULL_SYNC_SECONDS = 3600.0
"""How often everything is compared with what the kernel holds, whether or not anything has changed."""

UNWANTED_SECONDS = 1.0
"""How long an emptied chain stays: kernels before 6.2 refuse to delete it while an element that led to it is freed."""

Fragments = Mapping[Owner, Fragment | None]


class _Prepared(Struct, frozen=True):
    """A transaction, and what it was made of."""

    wanted: Fragments
    changes: Changes
    transaction: Transaction
    affinity_sets: int


class Proxier:
    """Keeps the table of one family equal to what its ServiceState knows."""

    def __init__(
        self,
        family: Family,
        config: Config,
        state: ServiceState,
        port: TablePort,
        timer: Callable[[], float],
    ) -> None:
        """``timer`` returns seconds and never goes back."""
        self.family = family
        self.state = state
        self._config = config
        self._port = port
        self._timer = timer
        self._programmed: Programmed[Owner] | None = None
        self._sticky: dict[str, StickyPort] = {}
        self._last_full = timer()

    def sync(self) -> SyncReport:
        """Bring the table up to date; raise KernelError where that failed, and do everything anew next time."""
        started = self._timer()
        work = self.state.check_out()
        programmed, self._programmed = self._programmed, None
        if started - self._last_full >= FULL_SYNC_SECONDS:
            programmed = None
        basis = self._basis(programmed, work, started)
        prepared = self._prepare(basis, started)
        kernel_started = self._timer()
        self._send(basis, prepared)
        ended = self._timer()
        self._adopt(basis, prepared, ended)
        transaction = prepared.transaction
        return SyncReport(
            family=self.family,
            full=basis.full,
            service_ports=sum(isinstance(owner, ServicePortName) for owner in prepared.wanted),
            added=transaction.added_count,
            removed=transaction.removed_count,
            chains=len(transaction.chains),
            seconds=ended - started,
            kernel_seconds=ended - kernel_started,
            lost=self.state.lost(),
            trigger_times=work.trigger_times,
            conntrack_cleanup_required=work.conntrack_cleanup_required,
        )

    def _basis(self, programmed: Programmed[Owner] | None, work: Work, now: float) -> Basis:
        if programmed is None:
            self._last_full = now
            return basis_from_listing(self._port.read(), self.family, self._config, self.state.service_ports(), now)
        node = {Part.NODE} if work.node is not None else set[Part]()
        return Basis(programmed, TableState.READY, work.service_ports | node, self._sticky, full=False)

    def _prepare(self, basis: Basis, now: float) -> _Prepared:
        wanted = self._render(basis, now)
        if basis.full:
            basis.trust_unchanged(wanted)
        changes = basis.programmed.compare(_contents(wanted))
        written = {chain.name for chain in changes.written}
        expired = [
            name
            for name, since in basis.programmed.unwanted.items()
            if now - since > UNWANTED_SECONDS and name not in written
        ]
        transaction = Transaction(
            names.NFT_FAMILIES[self.family],
            names.TABLE,
            chains=(
                *self._missing_skeleton(basis),
                *self._missing_shared(basis, wanted),
                *changes.written,
                *(Chain(name) for name in changes.unwanted),
            ),
            removed=changes.removed,
            added=changes.added,
            dropped=(*basis.outdated, *expired),
        )
        sizes = (len(fragment.sticky.slots) for fragment in wanted.values() if fragment and fragment.sticky)
        return _Prepared(wanted, changes, transaction, max(sizes, default=0))

    def _render(self, basis: Basis, now: float) -> Fragments:
        # In the order of names, so that the same objects give the same transaction.
        owners = sorted(basis.owners, key=_order)
        orders = basis.programmed.contents_of(owners).arrays
        taken = _Taken(basis.sticky)
        wanted: dict[Owner, Fragment | None] = {}
        for owner in owners:
            match owner:
                case Part.NODE:
                    wanted[owner] = render_node(self.state.node, self._config)
                case Part.FOUND:
                    wanted[owner] = None
                case _:
                    wanted[owner] = self._render_service_port(owner, orders, taken, now)
        return wanted

    def _render_service_port(
        self, name: ServicePortName, orders: Orders, taken: "_Taken", now: float
    ) -> Fragment | None:
        plan = self.state.plan(name)
        if plan is None:
            return None
        sticky = taken.assign(plan, now) if plan.port.affinity_seconds else None
        return render_plan(plan, orders, sticky, self.family, self._config)

    def _missing_skeleton(self, basis: Basis) -> tuple[Chain, ...]:
        if not basis.full:
            return ()
        chains = layout.skeleton(self.family, self._config)
        return tuple(chain for chain in chains if chain.name not in basis.programmed.chains)

    def _missing_shared(self, basis: Basis, wanted: Fragments) -> tuple[Chain, ...]:
        existing = basis.programmed.chains
        fragments = (fragment.chains for fragment in wanted.values() if fragment is not None)
        specs = itertools.chain.from_iterable(
            (*fragments, (part for spec in basis.rewritten for part in with_pools(spec)))
        )
        needed = {spec.name: spec for spec in specs if spec.name not in existing}
        missing = with_common_sizes(needed.values(), existing) if needed else ()
        return tuple(shared_chain(spec, self.family, self._config) for spec in missing)

    def _send(self, basis: Basis, prepared: _Prepared) -> None:
        transaction, sets = prepared.transaction, prepared.affinity_sets
        match basis.table:
            case TableState.READY:
                more = layout.more_declarations(self.family, basis.programmed.containers, sets)
                if more.containers:
                    self._port.declare(more)
                self._port.commit(transaction)
            case TableState.MISSING:
                self._port.declare(layout.declarations(self.family, sets))
                self._port.commit(transaction)
            case TableState.OTHER_LAYOUT:
                declared = layout.declarations(self.family, sets)
                self._port.replace(layout.whole_table(declared, transaction))

    def _adopt(self, basis: Basis, prepared: _Prepared, now: float) -> None:
        programmed, transaction = basis.programmed, prepared.transaction
        programmed.adopt(_contents(prepared.wanted))
        programmed.forget(prepared.changes, transaction.dropped, now)
        owned = {chain.name for chain in prepared.changes.written} | set(prepared.changes.unwanted)
        programmed.chains.update(chain.name for chain in transaction.chains if chain.name not in owned)
        sets = layout.declarations(self.family, prepared.affinity_sets)
        programmed.containers.update(container.name for container in sets.containers)
        sticky = {} if basis.full else basis.sticky
        for owner, fragment in prepared.wanted.items():
            if isinstance(owner, ServicePortName):
                _remember(sticky, identity(owner), fragment)
        self._sticky = sticky
        self._programmed = programmed


class _Taken:
    """The sticky ports' numbers during one sync."""

    def __init__(self, known: Mapping[str, StickyPort]) -> None:
        self._known = known
        self._numbers: set[int] | None = None

    def assign(self, plan: ServicePlan, now: float) -> StickyPort:
        """Return the sticky port of a plan: its number for life, and an index for each of its endpoints."""
        name = identity(plan.name)
        previous = self._known.get(name) or StickyPort(self._new_number(name))
        targets = ((endpoint.address, endpoint.port) for endpoint in plan.endpoints.all_reachable)
        return assign(previous, targets, plan.port.affinity_seconds, now)

    def _new_number(self, name: str) -> int:
        if self._numbers is None:
            self._numbers = {sticky.number for sticky in self._known.values()}
        number = free_number(name, self._numbers)
        self._numbers.add(number)
        return number


def _remember(sticky: dict[str, StickyPort], name: str, fragment: Fragment | None) -> None:
    if fragment is not None and fragment.sticky is not None:
        sticky[name] = fragment.sticky
    else:
        sticky.pop(name, None)


def _order(owner: Owner) -> tuple[str, ...]:
    # The text of a name lacks the protocol.
    return (owner.value,) if isinstance(owner, Part) else tuple(owner)


def _contents(wanted: Fragments) -> dict[Owner, Contents | None]:
    return {owner: fragment.contents if fragment is not None else None for owner, fragment in wanted.items()}
