"""Packets that are under way at a commit which leads to chains that it makes itself, in rounds.

Each sync gives a Service with policy Local sizes of its two pools that no Service had so far, hence a chain that is
new; and then the same once more, when no chain is new. Packets are held up (``treacle``).
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.answering import Answering
from tests.lab.calls import NONE, Callers
from tests.lab.topology import Lab
from tests.packets import treacle
from tests.packets.churn import EVERY, HERE, PODS, SERVICES, TARGET_PORTS, Pool, slices_between
from tests.packets.crowd import gather
from tests.packets.frontends import frontends
from tests.packets.live import LiveNode

NEAR = next(kind for kind in SERVICES if kind.name == "near")
CALLERS = ("outside", "local-4")
SIZES = [(cluster, local) for cluster in range(2, 25) for local in range(1, min(cluster, len(HERE)) + 1)]
WITHOUT_END = 10**8


def soak(count: int, seed: int) -> None:
    """Play so many rounds; end with what was lost in all of them."""
    lost: list[str] = []
    with Lab(local_pods=4, remote_pods=8) as lab, tempfile.TemporaryDirectory() as folder:
        gather(lab)
        for number in range(count):
            lost += _play(lab, Path(folder), seed + number)
            print(f"soak: {number + 1} rounds, {len(lost)} connections lost", flush=True)
    if lost:
        sys.exit("\n".join(["soak: connections were lost:", *lost]))


def _play(lab: Lab, folder: Path, seed: int) -> list[str]:
    """Return which calls were lost, and whether while chains were new."""
    dialled = {name: [frontend for frontend in frontends(name) if frontend.kind is NEAR] for name in CALLERS}
    plans = {lab.host(name): [frontend.target for frontend in seen] for name, seen in dialled.items()}
    callers = Callers(plans, folder, WITHOUT_END, seed)
    with Answering(map(lab.host, PODS), TARGET_PORTS), LiveNode(lab) as node:
        node.apply([NEAR.manifest(), *slices_between(NEAR.name, (), _pool(1, 1))])
        treacle.pour(node.namespace)
        with callers:
            time.sleep(1)
            _walk(node)
            known = time.monotonic()
            _walk(node)
    return [
        f"{'while chains were new' if call.begun < known else 'later'}: {seen[call.target]}: {call}"
        for name, seen in dialled.items()
        for call in callers.calls(lab.host(name))
        if call.trouble != NONE or call.again
    ]


def _walk(node: LiveNode) -> None:
    """Sync once for each pair of sizes, and go back to the smallest."""
    pools = [_pool(1, 1), *(_pool(*sizes) for sizes in SIZES), _pool(1, 1)]
    for before, after in itertools.pairwise(pools):
        node.apply(list(slices_between(NEAR.name, before, after)))


def _pool(cluster: int, local: int) -> Pool:
    remote = [backend for backend in EVERY if not backend.is_local]
    return (*HERE[:local], *remote[: cluster - local])
