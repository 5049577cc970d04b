"""Proxier: one family's way from changed objects to a committed transaction.

    ServiceState ──check out──▶ plan ──▶ render ──▶ compare ──▶ commit ──▶ adopt

After a failed commit nothing is known of the table: the next sync reads it back and compares everything.
"""

from collections.abc import Callable, Mapping

from knft.config import Config
from knft.delta.programmed import Programmed
from knft.model.names import Family, ServicePortName
from knft.nft.objects import Chain, Contents
from knft.nft.transaction import Transaction
from knft.render import layout, names
from knft.render.fragment import Fragment, Orders, render_node, render_plan
from knft.render.limits import not_yet
from knft.render.pools import shared_chain, with_common_sizes
from knft.sync.basis import Basis, Owner, Part, TableState, basis_from_listing
from knft.sync.ports import TablePort
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState, Work

Fragments = Mapping[Owner, Fragment | None]


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

    def sync(self) -> SyncReport:
        """Bring the table up to date; raise KernelError where that failed, and do everything anew next time."""
        started = self._timer()
        work = self.state.check_out()
        programmed, self._programmed = self._programmed, None
        basis = self._basis(programmed, work)
        wanted, notices = self._render(basis)
        transaction = self._transaction(basis, wanted)
        kernel_started = self._timer()
        self._send(basis, transaction)
        ended = self._timer()
        basis.programmed.adopt(_contents(wanted), (chain.name for chain in transaction.chains))
        self._programmed = basis.programmed
        return SyncReport(
            family=self.family,
            full=basis.full,
            service_ports=sum(isinstance(owner, ServicePortName) for owner in wanted),
            added=transaction.added_count,
            removed=transaction.removed_count,
            chains=len(transaction.chains),
            seconds=ended - started,
            kernel_seconds=ended - kernel_started,
            lost=self.state.lost(),
            notices=notices,
            trigger_times=work.trigger_times,
            conntrack_cleanup_required=work.conntrack_cleanup_required,
        )

    def _basis(self, programmed: Programmed[Owner] | None, work: Work) -> Basis:
        if programmed is None:
            markers = layout.markers(self.family, self._config)
            return basis_from_listing(self._port.read(), markers, self.state.service_ports())
        node = {Part.NODE} if work.node is not None else set[Part]()
        return Basis(programmed, TableState.READY, work.service_ports | node, full=False)

    def _render(self, basis: Basis) -> tuple[Fragments, tuple[str, ...]]:
        # In the order of names, so that the same objects give the same transaction.
        owners = sorted(basis.owners, key=str)
        orders = basis.programmed.contents_of(owners).arrays
        wanted: dict[Owner, Fragment | None] = {}
        notices: list[str] = []
        for owner in owners:
            match owner:
                case Part.NODE:
                    wanted[owner] = render_node(self.state.node, self._config)
                case Part.FOUND:
                    wanted[owner] = None
                case _:
                    wanted[owner] = self._render_service_port(owner, orders, notices)
        return wanted, tuple(notices)

    def _render_service_port(self, name: ServicePortName, orders: Orders, notices: list[str]) -> Fragment | None:
        plan = self.state.plan(name)
        if plan is None:
            return None
        notices.extend(not_yet(plan))
        return render_plan(plan, orders)

    def _transaction(self, basis: Basis, wanted: Fragments) -> Transaction:
        existing = basis.programmed.chains
        changes = basis.programmed.compare(_contents(wanted))
        return Transaction(
            names.NFT_FAMILIES[self.family],
            names.TABLE,
            chains=(*self._missing_skeleton(basis), *self._missing_shared(wanted, existing)),
            removed=changes.removed,
            added=changes.added,
            dropped=basis.outdated,
        )

    def _missing_skeleton(self, basis: Basis) -> tuple[Chain, ...]:
        if not basis.full:
            return ()
        chains = layout.skeleton(self.family, self._config)
        return tuple(chain for chain in chains if chain.name not in basis.programmed.chains)

    def _missing_shared(self, wanted: Fragments, existing: set[str]) -> tuple[Chain, ...]:
        needed = {
            spec.name: spec
            for fragment in wanted.values()
            if fragment is not None
            for spec in fragment.chains
            if spec.name not in existing
        }
        missing = with_common_sizes(needed.values(), existing) if needed else ()
        return tuple(shared_chain(spec, self.family, self._config) for spec in missing)

    def _send(self, basis: Basis, transaction: Transaction) -> None:
        match basis.table:
            case TableState.READY:
                self._port.commit(transaction)
            case TableState.MISSING:
                self._port.declare(layout.declarations(self.family))
                self._port.commit(transaction)
            case TableState.OTHER_LAYOUT:
                self._port.replace(layout.whole_table(self.family, transaction))


def _contents(wanted: Fragments) -> dict[Owner, Contents | None]:
    return {owner: fragment.contents if fragment is not None else None for owner, fragment in wanted.items()}
