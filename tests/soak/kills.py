"""Kills by the hundred, in rounds of twenty; each is begun without rules."""

import sys
import tempfile
from pathlib import Path

from tests.packets.kill_and_restart import run_kills
from tests.packets.many_clients import add_client_addresses
from tests.support.lab.topology import Lab

ROUND = 20
NAMED = 20
"""So many faults are told of."""


def soak(count: int, seed: int) -> None:
    """Kill knft so often; end with the faults of the first round that has any."""
    with Lab(local_pods=4, remote_pods=8) as lab:
        add_client_addresses(lab)
        for number, first in enumerate(range(0, count, ROUND)):
            with tempfile.TemporaryDirectory() as folder:
                killed = run_kills(lab, Path(folder), min(ROUND, count - first), seed + number)
            print(f"soak: {killed}", flush=True)
            faults = [*killed.faults, *killed.changes, *killed.table_differences]
            if faults or killed.untranslated:
                sys.exit("\n".join(["soak: killing did harm:", *faults[:NAMED]]))
    print(f"soak: {count} kills, and no harm was done")
