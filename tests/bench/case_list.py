"""The cases of a run in their order: cases for the targets first, the slowest last."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from tests.bench.case import Case
from tests.bench.cluster import Shape
from tests.bench.latency import WITHOUT_RULES, Ruleset
from tests.bench.peers.registry import PEERS
from tests.bench.record import BARE, KNFT, LATENCY
from tests.bench.shapes import FULL, QUICK

# Latency with larger clusters is measured for these proxies only; the other layouts take minutes to load.
_MORE_LATENCY = (KNFT, "kube-proxy 1.36", "iptables-legacy")


class RunPlan(Struct, frozen=True):
    """The plan of a run; ``seconds`` is the time limit of a peer for each kind of change."""

    shapes: tuple[Shape, ...]
    syncs: int
    seconds: float
    dials: int
    repeats: int
    settle_seconds: float


FULL_RUN = RunPlan(FULL, syncs=200, seconds=8.0, dials=4000, repeats=3, settle_seconds=5.0)
QUICK_RUN = RunPlan(QUICK, syncs=20, seconds=1.0, dials=200, repeats=1, settle_seconds=0.02)


def cases(run_plan: RunPlan, only: Collection[str], profile: str) -> Iterator[Case]:
    """Yield the cases, or those of the proxies in ``only``."""
    for case in _all_cases(run_plan, profile):
        if not only or case.proxy in only:
            yield case


def _all_cases(run_plan: RunPlan, profile: str) -> Iterator[Case]:
    for shape in run_plan.shapes:
        for number in range(run_plan.repeats):
            # In turn, so that a slow second of the machine does not hit all of one kind. The bare commit is IPv4 only.
            if not shape.is_dual_stack:
                yield Case(BARE, shape)
            # Changes need no repetition: each kind is many syncs.
            syncs = 0 if number else run_plan.syncs
            yield Case(KNFT, shape, syncs, settle_seconds=run_plan.settle_seconds)
        if profile:
            yield Case(KNFT, shape, run_plan.syncs, profile=profile)
    if any(shape.is_plain for shape in run_plan.shapes):
        yield Case(LATENCY, run_plan.shapes[0], dials=run_plan.dials, rulesets=tuple(_rulesets(run_plan)))
    for name, peer in PEERS.items():
        for shape in filter(peer.supports, run_plan.shapes):
            yield Case(name, shape, run_plan.syncs, run_plan.seconds, settle_seconds=run_plan.settle_seconds)


def _rulesets(run_plan: RunPlan) -> Iterator[Ruleset]:
    first, *others = (shape for shape in run_plan.shapes if shape.is_plain)
    yield Ruleset(WITHOUT_RULES, first)
    for proxy in (KNFT, *PEERS):
        yield Ruleset(proxy, first)
    for index, shape in enumerate(others):
        yield from (Ruleset(proxy, shape) for proxy in (_MORE_LATENCY if index == 0 else _MORE_LATENCY[:1]))
