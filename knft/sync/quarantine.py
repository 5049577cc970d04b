"""Quarantine: Service ports that the kernel refuses are found by bisection, excluded, and retried with backoff."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from knft.delta.programmed import MAX_RETRY_DELAY_SECONDS
from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.model.names import ServicePortName
from knft.nft.objects import NamedObject

MAX_LIBRARY_DEATHS = 50
"""How often libnftables may crash or hang in one search: enough to find 3 refused names of 30 000 (15 steps each)."""


Name = TypeVar("Name", ServicePortName, NamedObject, str)


def bisect(names: Sequence[Name], commit: Callable[[Sequence[Name]], object]) -> dict[Name, KernelError]:
    """Commit all ``names`` except those that are refused even alone; return the refused names and their errors.

    ``commit`` raises KernelError if the kernel refuses the batch, or LibraryDiedError if it crashes libnftables.
    k refused names among n take about k log n more commits. After ``MAX_LIBRARY_DEATHS`` crashes, each of which costs a
    new worker process, all names of a batch that crashes libnftables count as refused. Any other UnavailableError does
    not depend on the names, and is raised.
    """
    deaths = 0
    refused: dict[Name, KernelError] = {}
    batches = [names] if names else []
    while batches:
        batch = batches.pop()
        try:
            commit(batch)
        except KernelError as error:
            died = isinstance(error, LibraryDiedError)
            if isinstance(error, UnavailableError) and not died:
                raise
            deaths += died
            middle = len(batch) // 2
            if middle and not (died and deaths > MAX_LIBRARY_DEATHS):
                batches += (batch[middle:], batch[:middle])
            else:
                # Only the text is used: the frames refer to this dictionary, and to all that was rendered.
                error.__traceback__ = error.__context__ = None
                refused.update(dict.fromkeys(batch, error))
    return refused


class RetryState(Struct, frozen=True):
    """Why the kernel refused a change, when that was, and the delay until the next attempt; times are in seconds."""

    reason: str
    last_attempt: float
    delay: float

    @property
    def retry_at(self) -> float:
        """The time of the next attempt."""
        return self.last_attempt + self.delay

    def after_refusal(self, reason: str, now: float) -> "RetryState":
        """Return the state after another refusal, with twice the delay."""
        return RetryState(reason, now, min(2 * self.delay, MAX_RETRY_DELAY_SECONDS))


class Quarantine:
    """The Service ports that the kernel refuses."""

    def __init__(self, first_delay: float) -> None:
        """Start empty; retry each Service port after ``first_delay`` seconds, then with exponential backoff."""
        self._first_delay = first_delay
        self._waiting: dict[ServicePortName, RetryState] = {}

    def __contains__(self, name: ServicePortName) -> bool:
        """Whether a Service port is quarantined."""
        return name in self._waiting

    def names(self) -> frozenset[ServicePortName]:
        """Return the quarantined Service ports."""
        return frozenset(self._waiting)

    def reasons(self) -> dict[ServicePortName, str]:
        """Return the quarantined Service ports, and why the kernel refused each."""
        return {name: state.reason for name, state in self._waiting.items()}

    def add(self, name: ServicePortName, reason: str, now: float) -> None:
        """Quarantine a Service port, with twice the last delay if it is quarantined already; ``now`` is in seconds."""
        previous = self._waiting.get(name)
        first = RetryState(reason, now, self._first_delay)
        self._waiting[name] = previous.after_refusal(reason, now) if previous is not None else first

    def reset_delay(self, names: Collection[ServicePortName]) -> None:
        """Reset the backoff of Service ports that have changed, since the change may have fixed the cause."""
        for name in self._waiting.keys() & names:
            self._waiting[name] = structs.replace(self._waiting[name], delay=self._first_delay)

    def release(self, owners: Collection[object]) -> None:
        """Remove Service ports that were committed or deleted; ``owners`` may contain others."""
        for name in [name for name in self._waiting if name in owners]:
            del self._waiting[name]

    def due(self, now: float) -> list[ServicePortName]:
        """Return the Service ports to retry now, sorted."""
        return sorted(name for name, state in self._waiting.items() if state.retry_at <= now)

    def seconds_to_next_retry(self, now: float) -> float | None:
        """Return the seconds until the next retry, None if nothing is quarantined."""
        return min((max(0.0, state.retry_at - now) for state in self._waiting.values()), default=None)
