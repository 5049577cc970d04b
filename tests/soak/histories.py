"""One long history: a single process syncs on and on, and rarely starts anew.

The law is checked after every sync as in ``tests/kernel/test_histories.py``, rules and all at each report.
"""

import sys
from collections.abc import Callable
from random import Random

from tests.kernel.failing_history import FailingHistory
from tests.soak.memory import ALLOWED, MemoryWatch

REPORTS = 40

KINDS = ("Service", "Service", "EndpointSlice", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR")

VERBS: tuple[tuple[int, Callable[[FailingHistory, Random], None]], ...] = (
    (200, lambda history, chance: history.add(chance.choice(KINDS), chance)),
    (500, lambda history, chance: history.change(chance.choice(KINDS), chance)),
    (150, lambda history, chance: history.delete(chance.choice(KINDS), chance)),
    (30, FailingHistory.change_addresses),
    (60, FailingHistory.pass_time),
    (30, FailingHistory.fail),
    (20, FailingHistory.refuse_cluster_ips),
    (20, FailingHistory.stop_refusing),
    (20, FailingHistory.fail_repeatedly),
    (20, FailingHistory.change_table_while_monitored),
    (2, FailingHistory.delete_layout_marker),
    (400, lambda history, _: history.sync()),
    # Rarely, since memory that grows with a process's life goes with the process.
    (1, FailingHistory.restart),
    (1, FailingHistory.damage),
)
"""What happens, and how often."""


def soak(steps: int, seed: int) -> None:
    """Let so much happen, and say from time to time how it goes; raise where the law is broken or memory grows."""
    chance, watch = Random(seed), MemoryWatch()  # noqa: S311 - to be had again
    history = FailingHistory(chance)
    weights, verbs = zip(*VERBS, strict=True)
    for report in range(1, REPORTS + 1):
        while history.steps < steps * report // REPORTS:
            chance.choices(verbs, weights)[0](history, chance)
        history.finish()
        sizes = " + ".join(f"{size:.1f}" for size in watch.sample())
        print(f"soak: {history.steps} steps, {history.syncs} syncs compared, {sizes} MiB", flush=True)
    history.close()
    growth = watch.growth()
    print(f"soak: the law holds; memory grew by {growth:.2f} MiB in the second half ({ALLOWED} are allowed)")
    if growth > ALLOWED:
        sys.exit("soak: memory is not flat")
