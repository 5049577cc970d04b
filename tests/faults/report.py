"""The results: a table for people and the documentation, and JSON. Computes only."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from tests.faults.pod_lives import PodLife
from tests.faults.verdict import Verdict


class Result(Struct, frozen=True):
    """What one fault has done; ``error`` says why it was not completed."""

    name: str
    text: str
    seconds: float
    verdict: Verdict = Verdict()
    error: str = ""
    started: float = 0.0
    """When the clients started, on the wall clock."""
    pods: Mapping[str, PodLife] = {}
    """The pods of the test: from them and the records, the verdict can be made again."""
    full_neighbour_tables: int = 0
    """How often the kernel, which all nodes share, had no room for another neighbour: it drops packets then."""

    @property
    def is_good(self) -> bool:
        """Whether the fault was made, clients connected, and each lost connection is explained."""
        return not self.error and self.verdict.new > 0 and self.verdict.kept > 0 and not self.verdict.unexplained


class Report(Struct, frozen=True):
    """A run."""

    date: str
    kubernetes: str
    kernel: str
    families: str
    api_seconds: float
    pods: int
    results: tuple[Result, ...]


_COLUMNS = ("Fault", "Time", "New", "Failed", "Established", "Broken", "Answers", "Servers that ended", "Unexplained")


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{' --- |' * len(_COLUMNS)}"
    for result in results:
        found = result.verdict
        cells = (
            f"`{result.name}`: {result.text}",
            f"{result.seconds:.0f} s",
            *(found.new, found.new_failed, found.kept, found.kept_broken, found.answers, found.servers_ended),
            result.error.partition("\n")[0] or len(found.unexplained),
        )
        yield f"| {' | '.join(map(str, cells))} |"


def faults(results: Sequence[Result], shown: int = 10) -> Iterator[str]:
    """Yield the first unexplained connections of each fault, and the errors."""
    for result in results:
        for line in (*filter(None, [result.error]), *result.verdict.unexplained[:shown]):
            yield f"{result.name}: {line}"
        if len(result.verdict.unexplained) > shown:
            yield f"{result.name}: and {len(result.verdict.unexplained) - shown} more"


def notes(result: Result) -> Iterator[str]:
    """Yield what helps to understand the lost connections."""
    pods = result.pods.values()
    delays = {
        "deletion": _longest_delay(pods, lambda life: [] if life.deleted is None else [life.deleted]),
        "death": _longest_delay(pods, lambda life: life.died),
    }
    for event, delay in delays.items():
        if delay > 0:
            yield f"{result.name}: a pod was an endpoint for up to {delay:.1f} s after its {event}"
    if result.full_neighbour_tables:
        yield f"{result.name}: the kernel's neighbour tables were full {result.full_neighbour_tables} times"


def _longest_delay(pods: Iterable[PodLife], times: Callable[[PodLife], Iterable[float]]) -> float:
    return max(
        (
            listing.unlisted - time
            for life in pods
            for listing in life.listings
            for time in times(life)
            if listing.unlisted is not None and time >= listing.listed
        ),
        default=0.0,
    )
