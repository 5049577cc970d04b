"""Hundreds of kills of knft, in rounds that begin without rules."""

import sys
import tempfile
from pathlib import Path

from tests.support.lab.topology import Lab
from tests.support.packets.kill_and_restart import run_kills
from tests.support.packets.many_clients import add_client_addresses

ROUND = 20
MAX_PRINTED = 20
"""The number of faults that are printed."""


def soak(count: int, seed: int) -> None:
    """Kill knft ``count`` times; exit with the faults of the first round that has any."""
    with Lab(local_pods=4, remote_pods=8) as lab:
        add_client_addresses(lab)
        for number, first in enumerate(range(0, count, ROUND)):
            with tempfile.TemporaryDirectory() as folder:
                result = run_kills(lab, Path(folder), min(ROUND, count - first), seed + number)
            print(f"soak: {result}", flush=True)
            faults = [*result.faults, *result.changes, *result.table_differences]
            if faults or result.untranslated:
                sys.exit("\n".join(["soak: faults after a kill:", *faults[:MAX_PRINTED]]))
    print(f"soak: {count} kills, no fault")
