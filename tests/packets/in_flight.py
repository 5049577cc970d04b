"""Packets that are under way at a commit, which ``treacle`` holds up so that there are many.

``new_chains``: what a packet enters is led by its verdict to a chain that the commit makes itself. Each sync gives a
Service with policy Local sizes of its two pools that no Service had so far, hence a chain that is new; and then the
same once more, when no chain is new.

``scaled``: a packet has its verdict, for a pool of many, and looks for its endpoint in a pool of one.

``to_itself``: a packet is led to the endpoint that sends it, which is none any more when it is to be masqueraded.

``made_sticky``: a packet enters before a Service becomes sticky, or while the endpoints of a sticky one come and go.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.packets import treacle
from tests.packets.churn import EVERY, HERE, LOCAL, PODS, SERVICES, TARGET_PORTS, Kind, Pool, slices_between
from tests.packets.crowd import STICKY
from tests.packets.frontends import PLACES, Frontend, frontends
from tests.packets.live import LiveNode
from tests.packets.programmed import both_protocols, service
from tests.support.lab.answering import Answering
from tests.support.lab.calls import NONE, Callers
from tests.support.lab.topology import Lab

NEAR = next(kind for kind in SERVICES if kind.name == "near")
OPEN = next(kind for kind in SERVICES if kind.name == "open")
KEPT = next(kind for kind in SERVICES if kind.name == "kept-near")
CALLERS = ("outside", "local-4")
SIZES = [(cluster, local) for cluster in range(2, 25) for local in range(1, min(cluster, len(HERE)) + 1)]
MANY = 20
POOLS = tuple(f"pool-{protocol}-{MANY}" for protocol in ("tcp", "udp"))
WITHOUT_END = 10**8
THINNER = 5_000
"""Rules that hold packets up for a twentieth of a millisecond, ten times as long as they take without."""


class Played(NamedTuple):
    """How many calls there were, how many of them across a commit, and which were lost."""

    calls: int
    across: int
    lost: list[str]


def new_chains(lab: Lab, folder: Path, seed: int) -> Played:
    """Have chains made that verdicts lead to at once; play until every pair of sizes was there twice."""
    seen = {name: [frontend for frontend in frontends(name) if frontend.kind is NEAR] for name in CALLERS}
    pools = [_pool(1, 1), *(_pool(*sizes) for sizes in SIZES), _pool(1, 1)]
    with _node(lab, NEAR, pools[0]) as node:
        treacle.pour(node.namespace, ("services",))
        return _play(lab, folder, seed, seen, lambda: _walk(node, NEAR, pools + pools))


def scaled(lab: Lab, folder: Path, seed: int, times: int) -> Played:
    """Scale a Service from one endpoint to many and back, so often."""
    seen = {
        name: [frontend for frontend in frontends(name) if frontend.kind is OPEN and frontend.place == "cluster"]
        for name in CALLERS
    }
    few, many = EVERY[:1], EVERY[:MANY]
    with _node(lab, OPEN, many) as node:
        treacle.pour(node.namespace, POOLS)
        return _play(lab, folder, seed, seen, lambda: _walk(node, OPEN, [many, few] * times))


def to_itself(lab: Lab, folder: Path, seed: int, times: int) -> Played:
    """Have the endpoint that dials come and go, so often."""
    caller, other = HERE[-1], HERE[0]
    seen = {caller.pod: [frontend for frontend in frontends(caller.pod) if frontend.kind is OPEN]}
    with _node(lab, OPEN, (other,)) as node:
        treacle.pour(node.namespace, ("masquerading",), THINNER)
        return _play(lab, folder, seed, seen, lambda: _walk(node, OPEN, [(other,), (other, caller)] * times))


def made_sticky(lab: Lab, folder: Path, seed: int, times: int, *, by_cluster_ip_alone: bool) -> Played:
    """Give a Service affinity and take it away, with endpoints that come and go meanwhile, so often."""
    callers = CALLERS[1:] if by_cluster_ip_alone else CALLERS
    places = ("cluster",) if by_cluster_ip_alone else PLACES
    seen = {
        name: [frontend for frontend in frontends(name) if frontend.kind is KEPT and frontend.place in places]
        for name in callers
    }
    wandering = KEPT._replace(spec=LOCAL)
    steps = [(KEPT, _pool(8, 2)), (KEPT, _pool(2, 1)), (wandering, _pool(2, 1)), (wandering, _pool(9, 4))] * times

    def walk(node: LiveNode) -> Iterator[float]:
        for (_, before), (kind, after) in itertools.pairwise(steps):
            manifest = _by_cluster_ip(kind) if by_cluster_ip_alone else kind.manifest()
            node.apply([manifest, *slices_between(kind.name, before, after)])
            yield time.monotonic()

    with _node(lab, *steps[0]) as node:
        treacle.pour(node.namespace, ("services",))
        return _play(lab, folder, seed, seen, lambda: list(walk(node)))


def _by_cluster_ip(kind: Kind) -> dict[str, Any]:
    affinity = {field: value for field, value in kind.spec.items() if field in STICKY}
    return service(kind.name, kind.number, *both_protocols("http", 80), **affinity)


@contextmanager
def _node(lab: Lab, kind: Kind, pool: Pool) -> Iterator[LiveNode]:
    with Answering(map(lab.host, PODS), TARGET_PORTS), LiveNode(lab) as node:
        node.apply([kind.manifest(), *slices_between(kind.name, (), pool)])
        yield node


def _play(
    lab: Lab,
    folder: Path,
    seed: int,
    seen: Mapping[str, Sequence[Frontend]],
    walk: Callable[[], list[float]],
) -> Played:
    """Call while the walk lasts, which returns the times of its commits."""
    targets = {lab.host(name): [frontend.target for frontend in dialled] for name, dialled in seen.items()}
    callers = Callers(targets, folder, WITHOUT_END, seed)
    with callers:
        time.sleep(1)
        commits = walk()
    calls = [(name, call) for name in seen for call in callers.calls(lab.host(name))]
    across = sum(any(call.begun < commit < call.ended for commit in commits) for _, call in calls)
    lost = [f"{seen[name][call.target]}: {call}" for name, call in calls if call.trouble != NONE or call.again]
    return Played(len(calls), across, lost)


def _walk(node: LiveNode, kind: Kind, pools: Sequence[Pool]) -> list[float]:
    """Sync once for each pool; return when each was committed."""
    commits = []
    for before, after in itertools.pairwise(pools):
        if before != after:
            node.apply(list(slices_between(kind.name, before, after)))
            commits.append(time.monotonic())
    return commits


def _pool(cluster: int, local: int) -> Pool:
    remote = [backend for backend in EVERY if not backend.is_local]
    return (*HERE[:local], *remote[: cluster - local])
