"""Connections by the million while endpoints come and go, in rounds; each is begun without rules."""

import sys
import tempfile
from pathlib import Path

from tests.packets.connections_under_churn import run_churn
from tests.packets.many_clients import add_client_addresses
from tests.support.lab.topology import Lab

ROUND = 60_000
"""An endpoint of a sticky Service may leave only so often in a round (``Churn``)."""
NAMED = 20
"""So many faults are told of."""


def soak(count: int, seed: int) -> None:
    """Make so many connections; end with the faults of the first round that has any."""
    made = syncs = 0
    with Lab(local_pods=4, remote_pods=8) as lab, tempfile.TemporaryDirectory() as folder:
        add_client_addresses(lab)
        while made < count:
            played = run_churn(lab, Path(folder), min(ROUND, count - made), seed)
            made, syncs, seed = made + played.answered.total(), syncs + played.syncs, seed + 1
            print(f"soak: {played}", flush=True)
            if played.faults or played.untranslated:
                sys.exit("\n".join(["soak: connections were lost:", *played.faults[:NAMED]]))
    print(f"soak: {made} connections and {syncs} syncs, and none was lost")
