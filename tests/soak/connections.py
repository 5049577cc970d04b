"""Millions of connections while endpoints change, in rounds that begin without rules."""

import sys
import tempfile
from pathlib import Path

from tests.support.lab.topology import Lab
from tests.support.packets.connections_under_churn import run_churn
from tests.support.packets.many_clients import add_client_addresses

ROUND = 60_000
"""Connections in a round."""
MAX_PRINTED = 20
"""The number of faults that are printed."""


def soak(count: int, seed: int) -> None:
    """Make ``count`` connections; exit with the faults of the first round that has any."""
    made = syncs = 0
    with Lab(local_pods=4, remote_pods=8) as lab, tempfile.TemporaryDirectory() as folder:
        add_client_addresses(lab)
        while made < count:
            result = run_churn(lab, Path(folder), min(ROUND, count - made), seed)
            made, syncs, seed = made + result.answered.total(), syncs + result.syncs, seed + 1
            print(f"soak: {result}", flush=True)
            if result.faults or result.untranslated:
                sys.exit("\n".join(["soak: connections were lost:", *result.faults[:MAX_PRINTED]]))
    print(f"soak: {made} connections and {syncs} syncs, no connection lost")
