"""What one sync of one family did."""

from msgspec import Struct

from knft.decide.frontends import Lost
from knft.families import Family
from knft.model.names import ServicePortName
from knft.sync.prepare import Prepared
from knft.track.endpoints import TriggerTimes


class Done:
    """What a sync has sent so far, in one transaction or in several."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.service_ports = self.added = self.removed = self.chains = 0
        self.kernel_seconds = 0.0
        self.unsticky: list[ServicePortName] = []
        self.remade = False
        """Whether the table was made, or replaced."""

    def add(self, prepared: Prepared, kernel_seconds: float, *, remade: bool) -> None:
        """Note that a transaction was committed."""
        self.remade |= remade
        self.service_ports += sum(isinstance(owner, ServicePortName) for owner in prepared.wanted)
        self.added += prepared.transaction.added_count
        self.removed += prepared.transaction.removed_count
        self.chains += len(prepared.transaction.prepared_chains) + len(prepared.transaction.chains)
        self.kernel_seconds += kernel_seconds
        self.unsticky += prepared.unsticky


class SyncReport(Struct, frozen=True):
    """Counts and times of a sync that succeeded.

    ``full`` tells that everything was compared with what the kernel held; ``service_ports`` were planned anew,
    ``added`` and ``removed`` elements were sent. ``seconds`` is the whole sync, ``kernel_seconds`` the part spent in
    libnftables and the kernel. ``changed`` are the Service ports that the objects have changed since the last sync that
    succeeded, those that are gone among them. ``lost`` are the frontends that two Services claim, ``unsticky`` the
    Service ports of this sync that go without affinity. ``trigger_times`` and ``conntrack_cleanup_required`` speak for
    failed syncs before this one, too. ``left_out`` are the Service ports that the kernel refuses, with its reason;
    ``unswept`` is its reason for not removing what nobody wants, "" where all that is gone. To remove such things,
    empty chains included, was refused in ``refused_cleanups`` transactions since the last sync that succeeded.
    Another sync has something to do ``again_within`` so many seconds.
    """

    family: Family
    full: bool
    service_ports: int
    added: int
    removed: int
    chains: int
    seconds: float
    kernel_seconds: float
    changed: frozenset[ServicePortName]
    lost: tuple[Lost, ...]
    unsticky: tuple[ServicePortName, ...]
    left_out: dict[ServicePortName, str]
    unswept: str
    refused_cleanups: int
    again_within: float | None
    trigger_times: TriggerTimes
    conntrack_cleanup_required: bool

    def __str__(self) -> str:
        """Return the report as one line for a log."""
        kind = "full sync" if self.full else "sync"
        return (
            f"{self.family.value}: {kind} of {self.service_ports} Service ports in {self.seconds * 1e3:.1f} ms "
            f"({self.kernel_seconds * 1e3:.1f} ms in the kernel): {self.added} elements added, "
            f"{self.removed} removed, {self.chains} chains written"
        )
