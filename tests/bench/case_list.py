"""Which cases a run has, in order: what the targets need comes first, what takes longest last."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from tests.bench.case import Case
from tests.bench.cluster import Shape
from tests.bench.latency import NONE, Ruleset
from tests.bench.peers.registry import PEERS
from tests.bench.record import BARE, KNFT, LATENCY
from tests.bench.shapes import FULL, QUICK

# These two also get latency beyond the first size; the others take minutes to load there.
_MORE_LATENCY = (KNFT, "kube-proxy 1.36", "iptables-legacy")


class RunPlan(Struct, frozen=True):
    """How much is measured; ``seconds`` is how long a peer may go on with each kind of change."""

    shapes: tuple[Shape, ...]
    syncs: int
    seconds: float
    dials: int
    repeats: int
    patience: float


FULL_RUN = RunPlan(FULL, syncs=200, seconds=8.0, dials=4000, repeats=3, patience=5.0)
QUICK_RUN = RunPlan(QUICK, syncs=20, seconds=1.0, dials=200, repeats=1, patience=0.3)


def cases(extent: RunPlan, only: Collection[str], profile: str) -> Iterator[Case]:
    """Return the cases; with ``only``, those of these proxies."""
    for case in _all_cases(extent, profile):
        if not only or case.proxy in only:
            yield case


def _all_cases(extent: RunPlan, profile: str) -> Iterator[Case]:
    for shape in extent.shapes:
        for _ in range(extent.repeats):
            yield Case(BARE, shape)
        # Once with changes, which need not be repeated: each is many syncs.
        yield Case(KNFT, shape, extent.syncs, patience=extent.patience)
        for _ in range(extent.repeats - 1):
            yield Case(KNFT, shape)
        if profile:
            yield Case(KNFT, shape, extent.syncs, profile=profile)
    if any(shape.is_plain for shape in extent.shapes):
        yield Case(LATENCY, extent.shapes[0], dials=extent.dials, rulesets=tuple(_rulesets(extent)))
    for peer in PEERS:
        for shape in extent.shapes:
            yield Case(peer, shape, extent.syncs, extent.seconds, patience=extent.patience)


def _rulesets(extent: RunPlan) -> Iterator[Ruleset]:
    first, *others = (shape for shape in extent.shapes if shape.is_plain)
    yield Ruleset(NONE, first)
    for proxy in (KNFT, *PEERS):
        yield Ruleset(proxy, first)
    for index, shape in enumerate(others):
        yield from (Ruleset(proxy, shape) for proxy in (_MORE_LATENCY if index == 0 else _MORE_LATENCY[:1]))
