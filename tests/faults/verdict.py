"""Explains each connection that failed by a pod that died, or not. Computes only."""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tests.faults.pod_lives import PodLife
from tests.faults.records import Kind, Record

_ROUNDING_SECONDS = 2.0
"""The API server's times are whole seconds, and nodes write them a little later."""
_PROGRAMMING_SECONDS = 5.0
"""How long a Service proxy on a busy machine may take to follow an EndpointSlice."""


class Verdict(Struct, frozen=True):
    """The connections of one fault."""

    new: int = 0
    new_failed: int = 0
    kept: int = 0
    """Connections that were established: those that broke, and those that were open at the end."""
    kept_broken: int = 0
    answers: int = 0
    """Answers on established connections."""
    retransmissions: int = 0
    servers_ended: int = 0
    """Pods that were endpoints."""
    unexplained: tuple[str, ...] = ()


def judge(records: Iterable[Record], lives: Mapping[str, PodLife], started: float) -> Verdict:
    """Return the verdict over all connections since ``started``."""
    all_records = list(records)
    new = [record for record in all_records if record.kind is Kind.NEW]
    kept = [record for record in all_records if record.kind is Kind.KEPT]
    failed = [record for record in all_records if record.error]
    dead = {name: life for name, life in lives.items() if _died_since(life, started)}
    return Verdict(
        new=len(new),
        new_failed=_failures(new),
        kept=len(kept),
        kept_broken=_failures(kept),
        answers=sum(record.answers for record in kept),
        retransmissions=sum(record.retransmissions for record in all_records),
        servers_ended=sum(1 for life in dead.values() if life.was_endpoint),
        unexplained=tuple(describe(record, started) for record in failed if not explanation(record, dead)),
    )


def _failures(records: Sequence[Record]) -> int:
    return sum(1 for record in records if record.error)


def _died_since(life: PodLife, started: float) -> bool:
    return any(time >= started - _ROUNDING_SECONDS for time in _ends(life))


def _ends(life: PodLife) -> set[float]:
    return life.died | ({life.deleted} if life.deleted is not None else set())


def explanation(record: Record, dead: Mapping[str, PodLife]) -> str:
    """Return why a connection failed; empty if no pod that died explains it."""
    return _explain_kept(record, dead) if record.kind is Kind.KEPT else _explain_new(record, dead)


def _explain_kept(record: Record, dead: Mapping[str, PodLife]) -> str:
    """An established connection breaks when its own pod ends; a UDP flow, when its pod is deleted."""
    life = dead.get(record.server)
    if life is not None and any(time <= record.ended + _ROUNDING_SECONDS for time in _ends(life)):
        return f"{record.server} ended"
    return ""


def _explain_new(record: Record, dead: Mapping[str, PodLife]) -> str:
    """A new connection fails if its endpoint has died, and is still an endpoint or was one a moment ago."""
    for name, life in dead.items():
        is_recent = life.unlisted is not None and record.begun <= life.unlisted + _PROGRAMMING_SECONDS
        if (life.is_endpoint or is_recent) and any(_was_down(record, time, life) for time in life.died):
            return f"{name} had died"
    return ""


def _was_down(record: Record, died: float, life: PodLife) -> bool:
    """Whether a pod that died was not started again before the connection, so early that it was programmed."""
    back = min((time for time in life.started if time >= died), default=math.inf)
    return died <= record.ended + _ROUNDING_SECONDS and record.begun <= back + _PROGRAMMING_SECONDS


def describe(record: Record, started: float) -> str:
    """Return one line about a connection that failed."""
    server = f" of {record.server}" if record.server else ""
    times = f"{record.begun - started:.1f} s to {record.ended - started:.1f} s"
    return f"{record.kind} connection to {record.target}{server}, {times}: {record.error}"
