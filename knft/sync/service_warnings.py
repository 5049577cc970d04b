"""ServiceWarnings: logs probable mistakes of Services (docs/behaviour/tracking.md#unserved-services)."""

import logging
import threading
import time
from collections.abc import Iterator

from knft.memory_errors import exit_if_out_of_memory
from knft.model.objects import EndpointSlice, Service
from knft.sync.lasting_problems import log_ended
from knft.sync.log_summary import summarize
from knft.track.service_problems import (
    GRACE_SECONDS,
    AddressConflict,
    MissingPorts,
    MissingSlices,
    ServiceProblem,
    ServiceProblems,
)

log = logging.getLogger("knft")

INTERVAL_SECONDS = 10.0
"""Time between two checks of changed Services."""
BATCH = 500
"""How many Services are checked before other threads may record changes: a few milliseconds."""


class ServiceWarnings:
    """Records changed objects, and logs problems of Services: one line for all that are found together."""

    def __init__(self, problems: ServiceProblems) -> None:
        """Log what ``problems`` finds."""
        self._problems = problems
        self._lock = threading.Lock()

    def record(self, previous: Service | EndpointSlice | None, current: Service | EndpointSlice | None) -> None:
        """Record a changed object; from any thread."""
        with self._lock:
            self._problems.record(previous, current)

    def services(self) -> tuple[Service, ...]:
        """Return the current Services; from any thread, without a lock. Only ``removals`` change their order."""
        return self._problems.services()

    def removals(self) -> int:
        """Return how many Services were deleted since the start; from any thread."""
        return self._problems.removals

    def run(self, stop: threading.Event) -> None:
        """Check changed Services until ``stop`` is set. Needs its own thread."""
        while not stop.wait(INTERVAL_SECONDS):
            try:
                self.log_due(time.monotonic())
            except Exception as error:
                exit_if_out_of_memory(error)
                log.exception("the check of Services failed unexpectedly; please report this")

    def log_due(self, now: float, grace: float = GRACE_SECONDS) -> None:
        """Log the problems that have lasted for ``grace`` seconds at time ``now``."""
        more = True
        while more:
            with self._lock:
                more = self._problems.check(now, BATCH)
        with self._lock:
            ended = self._problems.take_ended()
        due = list(self._take_due(now, grace))
        for kind, subject, single in (
            (MissingSlices, "Services have no EndpointSlice", "has no EndpointSlice"),
            (MissingPorts, "Services have a port that no EndpointSlice has", "has a port that no EndpointSlice has"),
            (
                AddressConflict,
                "Services have an external IP or load balancer IP of the node or of pods",
                "has an external IP or load balancer IP of the node or of pods",
            ),
        ):
            found = [problem for problem in due if isinstance(problem, kind)]
            if found:
                log.warning("%s", summarize(found, subject))
            log_ended(f"Service {name} {single}" for ended_kind, name in ended if ended_kind is kind)

    def _take_due(self, now: float, grace: float) -> Iterator[ServiceProblem]:
        taken: list[ServiceProblem] | None = []
        while taken is not None:
            yield from taken
            with self._lock:
                taken = self._problems.take_due(now, BATCH, grace)
