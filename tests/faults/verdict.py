"""Explains each connection that failed by a pod that died, or not. Computes only.

A connection that failed is explained by the death of one pod only if all of this holds:

- The pod had died when the request that failed was sent, or died at most one second later. A request that a living pod
  leaves unanswered is not explained by a later death of the pod, and never by its deletion: a deleted pod still serves.
- Established connection: the pod is the one that had answered on it, and it died after its last answer. If the
  connection was closed, reset or refused, the pod had died then.
- New connection, whose pod is not known: an EndpointSlice had the pod as a ready endpoint when the connection began,
  or until at most two seconds before. The API server says until when; nothing is assumed about the delays of
  kubelets and of the EndpointSlice controller. A pod that is deleted is no endpoint long before it dies.
- New connection: the pod's containers had not been started again, at the same address, two seconds before.

One failure has no death as its reason: an established UDP flow is answered by another pod after an EndpointSlice no
longer has its own pod as a ready endpoint.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tests.faults.pod_lives import Listing, PodLife
from tests.faults.records import ANSWERED_BY, Kind, Record

_ROUNDING_SECONDS = 1.0
"""The API server's times are whole seconds. The container runtime noticed the ends of processes 0.4 s before or after
their clients did, on a busy machine."""
_ANSWER_SECONDS = 1.0
"""How long a pod may have had a request when it dies without an answer; 0.5 s were seen on a busy machine."""
_PROGRAMMING_SECONDS = 2.0
"""How long a Service proxy on a busy machine may take to follow an EndpointSlice."""
_START_SECONDS = 2.0
"""How long a server takes to listen after its container has started."""


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
    """Pods that were endpoints, and died or were deleted."""
    unexplained: tuple[str, ...] = ()


def judge(records: Iterable[Record], lives: Mapping[str, PodLife], started: float) -> Verdict:
    """Return the verdict over all connections since ``started``."""
    all_records = list(records)
    new = [record for record in all_records if record.kind is Kind.NEW]
    kept = [record for record in all_records if record.kind is Kind.KEPT]
    failed = [record for record in all_records if record.error]
    return Verdict(
        new=len(new),
        new_failed=_failures(new),
        kept=len(kept),
        kept_broken=_failures(kept),
        answers=sum(record.answers for record in kept),
        retransmissions=sum(record.retransmissions for record in all_records),
        servers_ended=sum(1 for life in lives.values() if life.listings and _ended_since(life, started)),
        unexplained=tuple(describe(record, started) for record in failed if not explanation(record, lives)),
    )


def _failures(records: Sequence[Record]) -> int:
    return sum(1 for record in records if record.error)


def _ended_since(life: PodLife, started: float) -> bool:
    times = life.died | ({life.deleted} if life.deleted is not None else set())
    return any(time >= started - _ROUNDING_SECONDS for time in times)


def explanation(record: Record, lives: Mapping[str, PodLife]) -> str:
    """Return why a connection failed; empty if no pod that died explains it."""
    if record.kind is Kind.KEPT:
        return _explain_kept(record, lives.get(record.server, PodLife()))
    return next((f"{name} had died" for name, life in lives.items() if _is_new_explained(record, life)), "")


def _explain_kept(record: Record, life: PodLife) -> str:
    if ANSWERED_BY in record.error:
        is_removed = bool(life.listings) and not any(_is_listed_at(each, record.ended) for each in life.listings)
        return f"{record.server} was no longer an endpoint" if is_removed else ""
    is_dead = any(_is_within(record.answered, died, _last_death(record)) for died in life.died)
    return f"{record.server} had died" if is_dead else ""


def _is_listed_at(listing: Listing, time: float) -> bool:
    """Whether an EndpointSlice had an endpoint at a time, and for a while after it."""
    return listing.listed <= time and (listing.unlisted is None or listing.unlisted > time + _ROUNDING_SECONDS)


def _is_within(first: float, time: float, last: float) -> bool:
    return first - _ROUNDING_SECONDS <= time <= last + _ROUNDING_SECONDS


def _last_death(record: Record) -> float:
    """Return until when a pod may have died to be the reason why the last request of a connection failed."""
    if record.kind is Kind.KEPT and not record.error.startswith(TimeoutError.__name__):
        # The end of the process closes the connection, also in the middle of an answer.
        return record.ended
    return min(record.ended, record.asked + _ANSWER_SECONDS)


def _is_new_explained(record: Record, life: PodLife) -> bool:
    """Whether the pod may have been chosen for a new connection, and was dead then."""
    return any(
        _is_within(listing.listed, died, _last_death(record)) and not _is_back(record, life, listing, died)
        for listing in life.listings
        if _could_be_chosen(record, listing)
        for died in life.died
    )


def _could_be_chosen(record: Record, listing: Listing) -> bool:
    is_early = record.begun < listing.listed - _ROUNDING_SECONDS
    is_late = listing.unlisted is not None and record.begun > listing.unlisted + _PROGRAMMING_SECONDS
    return not is_early and not is_late


def _is_back(record: Record, life: PodLife, listing: Listing, died: float) -> bool:
    """Whether a pod that died listened again at the same address before the connection."""
    has_moved = any(
        other.address != listing.address
        and _is_ipv6(other.address) == _is_ipv6(listing.address)
        and other.listed > died
        for other in life.listings
    )
    is_started = any(died <= time and record.begun > time + _START_SECONDS for time in life.started)
    return is_started and not has_moved


def _is_ipv6(address: str) -> bool:
    return ":" in address


def describe(record: Record, started: float) -> str:
    """Return one line about a connection that failed."""
    server = f" of {record.server}" if record.server else ""
    times = f"{record.begun - started:.1f} s to {record.ended - started:.1f} s"
    return f"{record.kind} connection to {record.target}{server}, {times}: {record.error}"
