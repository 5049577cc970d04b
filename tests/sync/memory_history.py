"""A random cluster history on a table in memory, compared with what a fresh process would render."""

from collections.abc import Callable
from random import Random

from knft.delta.programmed import MAX_RETRY_DELAY_SECONDS
from knft.errors import KernelError, LibraryDiedError
from knft.nft.objects import Chain
from knft.sync.invalidation import Invalidation
from tests.support.memory_harness import MemoryHarness
from tests.support.random_objects import NODES, SERVICE_CIDRS, SERVICES, SLICES, Traits, manifest, random_traits

NAMES = {"Service": SERVICES, "EndpointSlice": SLICES[:8], "Node": NODES, "ServiceCIDR": SERVICE_CIDRS}
KINDS = ("Service", "Service", "EndpointSlice", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR")
DURATIONS = (0.3, 1.1, 61.0, 3601.0, 11000.0)


class MemoryHistory:
    """One process, its restarts, and one table; ``run`` makes random steps."""

    def __init__(self, rng: Random) -> None:
        """Start with a small cluster, before the first sync."""
        self._rng = rng
        self._harness = MemoryHarness()
        self._traits: dict[tuple[str, str], Traits] = {}
        for kind in ("Service", "Service", *["EndpointSlice"] * 6):
            self._apply(kind)

    def run(self, steps: int) -> None:
        """Make random steps, some of which sync; then let everything settle, and compare."""
        choices: tuple[Callable[[], None], ...] = (
            *[self._change_object] * 5,
            *[self._sync] * 5,
            self._fail,
            self._pass_time,
            self._restart,
            self._damage,
        )
        for _ in range(steps):
            self._rng.choice(choices)()
        self._settle()

    def _change_object(self) -> None:
        kind = self._rng.choice(KINDS)
        if self._rng.random() < 0.7:
            self._apply(kind)
        else:
            self._harness.delete(kind, self._rng.choice(NAMES[kind]))

    def _apply(self, kind: str) -> None:
        name = self._rng.choice(NAMES[kind])
        self._harness.apply(manifest(kind, name, random_traits(kind, self._rng)))

    def _fail(self) -> None:
        """Let the next request fail before or after its execution."""
        table, error = self._harness.table, self._rng.choice((KernelError, LibraryDiedError))

        def fail_once(*_: object) -> None:
            table.stop_failing()
            msg = "for the test"
            raise error(msg)

        setattr(table, self._rng.choice(("on_read", "on_commit", "after_commit")), fail_once)

    def _pass_time(self) -> None:
        self._harness.now += self._rng.choice(DURATIONS)

    def _restart(self) -> None:
        self._harness = self._harness.restarted()

    def _damage(self) -> None:
        """Let another program empty a set, a map or a chain."""
        table = self._harness.table
        if table.elements and self._rng.random() < 0.5:
            table.elements[self._rng.choice(sorted(table.elements))].clear()
        elif table.chains:
            name = self._rng.choice(sorted(name for name, chain in table.chains.items() if chain.hook is None))
            table.chains[name] = Chain(name)
        self._harness.proxier.invalidate(Invalidation(declarations=self._rng.random() < 0.5))

    def _sync(self) -> None:
        try:
            report = self._harness.sync()
        except KernelError:
            return
        if not report.quarantined and not report.orphan_error:
            assert self._harness.differences() == []

    def _settle(self) -> None:
        self._harness.table.stop_failing()
        for _ in range(3):
            self._harness.now += 2 * MAX_RETRY_DELAY_SECONDS
            report = self._harness.sync()
        assert (report.quarantined, report.orphan_error, report.repair.error) == ({}, "", "")
        assert self._harness.differences() == []
        assert self._harness.proxier.audit(self._harness.table) == 0
