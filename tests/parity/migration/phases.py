"""Assigns the new connections to the steps of a migration, and checks them. Values in, values out."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.support.lab.clients import NONE, Connection
from tests.support.packets.connection_checks import ConnectionChecker
from tests.support.packets.frontends import Frontend
from tests.support.packets.many_clients import STICKY
from tests.support.packets.timeline import Timeline


class Phase(NamedTuple):
    """A command, from ``started``, and the time after it, from ``done`` to ``ended``, when nothing else is done."""

    name: str
    started: float
    done: float
    ended: float


class PhaseResult(NamedTuple):
    """The new connections of a phase; ``moved`` of ``sticky`` clients got another endpoint than in the last phase."""

    connections: int
    faults: list[str]
    sticky: int
    moved: int


_StickyClient = tuple[str, str, str, int, str]


class _PhaseChecker:
    """One phase. Session affinity is only checked while no command runs: then one proxy's rules are in force."""

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        self.checker = ConnectionChecker(timelines)
        self.connections = 0
        self.first: dict[_StickyClient, tuple[str, int]] = {}
        self.last: dict[_StickyClient, tuple[str, int]] = {}

    def check(self, frontend: Frontend, connection: Connection, *, is_quiet: bool) -> None:
        self.connections += 1
        if not is_quiet:
            frontend = frontend._replace(service=frontend.service._replace(spec=_without_affinity(frontend)))
        self.checker.check(frontend, connection)
        if frontend.service.is_sticky and connection.error == NONE:
            key = (
                frontend.client,
                frontend.service.name,
                connection.source,
                int(frontend.version),
                str(frontend.protocol),
            )
            endpoint = connection.server, connection.port
            self.first.setdefault(key, endpoint)
            self.last[key] = endpoint


def _without_affinity(frontend: Frontend) -> dict[str, object]:
    return {key: value for key, value in frontend.service.spec.items() if key not in STICKY}


def check_phases(
    phases: Sequence[Phase],
    timelines: Mapping[str, Timeline],
    connections: Iterable[tuple[Frontend, Connection]],
) -> list[PhaseResult]:
    """Check the connections, each client's in their order; those before the first phase are left out."""
    checkers = [_PhaseChecker(timelines) for _ in phases]
    starts = [phase.started for phase in phases]
    for frontend, connection in connections:
        number = bisect_right(starts, connection.started) - 1
        if number >= 0:
            phase = phases[number]
            is_quiet = connection.started >= phase.done and connection.ended <= phase.ended
            checkers[number].check(frontend, connection, is_quiet=is_quiet)
    return [
        PhaseResult(checker.connections, checker.checker.faults, *_moved(before, checker))
        for before, checker in zip([None, *checkers], checkers, strict=False)
    ]


def _moved(before: _PhaseChecker | None, now: _PhaseChecker) -> tuple[int, int]:
    """Return how many sticky clients connected in both phases, and how many of them moved in between."""
    known = before.last.keys() & now.first.keys() if before else set()
    return len(known), sum(1 for key in known if before is not None and before.last[key] != now.first[key])
