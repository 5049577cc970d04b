"""Packets that are in the middle of the rules at commits which create chains, in rounds."""

import sys
import tempfile
from pathlib import Path

from tests.support.lab.topology import Lab
from tests.support.packets.in_flight import run_new_chains, run_scaling
from tests.support.packets.many_clients import add_client_addresses

SCALINGS = 100


def soak(count: int, seed: int) -> None:
    """Run ``count`` rounds; exit with the lost connections of all of them."""
    lost: list[str] = []
    with Lab(local_pods=4, remote_pods=8) as lab, tempfile.TemporaryDirectory() as folder:
        add_client_addresses(lab)
        for number in range(count):
            lost += run_new_chains(lab, Path(folder), seed + number).lost
            lost += run_scaling(lab, Path(folder), seed + number, SCALINGS).lost
            print(f"soak: {number + 1} rounds, {len(lost)} connections lost", flush=True)
    if lost:
        sys.exit("\n".join(["soak: connections were lost:", *lost]))
