"""One poisonous Service port does not stop the others: finding it by halving, and trying it again now and then."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from knft.delta.programmed import LONGEST_PAUSE_SECONDS
from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.model.names import ServicePortName

MOST_DEATHS = 50
"""So often the library may die in one search, which finds three at fault among 30 000 (15 halvings each)."""


Name = TypeVar("Name", ServicePortName, str)


def halve(names: Sequence[Name], commit: Callable[[Sequence[Name]], None]) -> dict[Name, KernelError]:
    """Have all ``names`` committed but those that are refused by themselves; return these, with their refusals.

    ``commit`` raises KernelError where it is refused as a whole, or where the library dies of it. With k at fault among
    n that takes about k log n more commits. A library that dies takes a new process each time: where it has died often,
    those of whom it dies are left out together. What is no matter of what is committed is passed on, such as that
    somebody else owns the table.
    """
    deaths = 0
    refused: dict[Name, KernelError] = {}
    parts = [names] if names else []
    while parts:
        part = parts.pop()
        try:
            commit(part)
        except KernelError as error:
            died = isinstance(error, LibraryDiedError)
            if isinstance(error, UnavailableError) and not died:
                raise
            deaths += died
            middle = len(part) // 2
            if middle and not (died and deaths > MOST_DEATHS):
                parts += (part[middle:], part[:middle])
            else:
                refused.update(dict.fromkeys(part, error))
    return refused


class Waiting(Struct, frozen=True):
    """Why something is refused, when it was tried, and how long it waits after that; in seconds."""

    reason: str
    tried: float
    pause: float

    @property
    def due(self) -> float:
        """When it is tried again, in seconds."""
        return self.tried + self.pause

    def refused_again(self, reason: str, now: float) -> "Waiting":
        """Return what becomes of it where it is refused once more: it waits twice as long."""
        return Waiting(reason, now, min(2 * self.pause, LONGEST_PAUSE_SECONDS))


class LeftOut:
    """The Service ports that the kernel does not take."""

    def __init__(self, first_pause: float) -> None:
        """Nobody yet; whoever is left out waits ``first_pause`` seconds, then twice as long, and so on."""
        self._first_pause = first_pause
        self._waiting: dict[ServicePortName, Waiting] = {}

    def __contains__(self, name: ServicePortName) -> bool:
        """Whether a Service port is left out."""
        return name in self._waiting

    def names(self) -> frozenset[ServicePortName]:
        """Return who is left out."""
        return frozenset(self._waiting)

    def reasons(self) -> dict[ServicePortName, str]:
        """Return who is left out, and why."""
        return {name: waiting.reason for name, waiting in self._waiting.items()}

    def note(self, name: ServicePortName, reason: str, now: float) -> None:
        """Leave a Service port out, for longer than the last time if it is out already; ``now`` is in seconds."""
        before = self._waiting.get(name)
        first = Waiting(reason, now, self._first_pause)
        self._waiting[name] = before.refused_again(reason, now) if before is not None else first

    def note_changed(self, names: Collection[ServicePortName]) -> None:
        """Note that some have changed, which may have mended them: they need not wait longer than at first."""
        for name in self._waiting.keys() & names:
            self._waiting[name] = structs.replace(self._waiting[name], pause=self._first_pause)

    def forget(self, owners: Collection[object]) -> None:
        """Note that these are in, or gone."""
        for name in [name for name in self._waiting if name in owners]:
            del self._waiting[name]

    def due(self, now: float) -> list[ServicePortName]:
        """Return who has waited long enough."""
        return sorted(name for name, waiting in self._waiting.items() if waiting.due <= now)

    def next_due(self, now: float) -> float | None:
        """Return in how many seconds somebody has to be tried again; None where nobody is left out."""
        return min((max(0.0, waiting.due - now) for waiting in self._waiting.values()), default=None)
