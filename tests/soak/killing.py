"""Kills by the hundred, in rounds of twenty; each is begun without rules."""

import sys
import tempfile
from pathlib import Path

from tests.packets.crowd import gather
from tests.packets.killing import play
from tests.support.lab.topology import Lab

ROUND = 20
NAMED = 20
"""So many faults are told of."""


def soak(count: int, seed: int) -> None:
    """Kill knft so often; end with the faults of the first round that has any."""
    with Lab(local_pods=4, remote_pods=8) as lab:
        gather(lab)
        for number, first in enumerate(range(0, count, ROUND)):
            with tempfile.TemporaryDirectory() as folder:
                killed = play(lab, Path(folder), min(ROUND, count - first), seed + number)
            print(f"soak: {killed}", flush=True)
            faults = [*killed.faults, *killed.changes, *killed.wrong]
            if faults or killed.untranslated:
                sys.exit("\n".join(["soak: killing did harm:", *faults[:NAMED]]))
    print(f"soak: {count} kills, and no harm was done")
