"""One long random history: a single process syncs all the time, and rarely restarts.

The table is compared after every sync as in ``tests/sync/test_histories.py``, and the rules too at each report. Then
all objects are deleted before memory is measured, because random clusters differ by more than a leak.
"""

import os
import sys
from collections.abc import Callable
from random import Random

from tests.soak.memory import ALLOWED, MemoryWatch, resident_mib
from tests.support.failing_history import FailingHistory

REPORTS = 40

KINDS = ("Service", "Service", "EndpointSlice", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR")

STEPS: tuple[tuple[int, Callable[[FailingHistory, Random], None]], ...] = (
    (200, lambda history, rng: history.add(rng.choice(KINDS), rng)),
    (500, lambda history, rng: history.change(rng.choice(KINDS), rng)),
    (150, lambda history, rng: history.delete(rng.choice(KINDS), rng)),
    (30, FailingHistory.change_addresses),
    (60, FailingHistory.pass_time),
    (30, FailingHistory.fail_next_requests),
    (20, FailingHistory.refuse_cluster_ips),
    (20, FailingHistory.stop_refusing),
    (20, FailingHistory.fail_repeatedly),
    (20, FailingHistory.change_table_while_monitored),
    (2, FailingHistory.delete_layout_marker),
    (10, FailingHistory.add_foreign_objects),
    (400, lambda history, _: history.sync()),
    # Rarely, because a restart frees the memory whose growth is measured.
    (1, FailingHistory.restart),
    (1, FailingHistory.damage_table),
)
"""The steps, and how often each is drawn."""


def soak(steps: int, seed: int) -> None:
    """Run ``steps`` steps, and report from time to time; exit if memory grows. A wrong table is an AssertionError."""
    rng, watch = Random(seed), MemoryWatch(in_use=True)  # noqa: S311 - reproducible
    history = FailingHistory(rng)
    weights, actions = zip(*STEPS, strict=True)
    for report in range(1, REPORTS + 1):
        while history.steps < steps * report // REPORTS:
            rng.choices(actions, weights)[0](history, rng)
        history.finish()
        history.delete_all()
        history.finish()
        sizes = " + ".join(f"{size:.1f}" for size in watch.sample())
        print(
            f"soak: {history.steps} steps, {history.syncs} syncs compared, {sizes} MiB,"
            f" resident {resident_mib(os.getpid()):.1f} MiB",
            flush=True,
        )
    history.close()
    growth = watch.growth()
    print(f"soak: all tables are correct; memory grew by {growth:.2f} MiB in the second half ({ALLOWED} allowed)")
    if growth > ALLOWED:
        sys.exit(f"soak: memory grew by {growth:.2f} MiB, allowed are {ALLOWED} MiB")
