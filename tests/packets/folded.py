"""Commits phases of a transaction together, and measures which connections that costs.

``python -m tests.packets.folded`` runs the in-flight tests so, and prints the figures of
docs/design/transaction-phases.md#measurement. It takes some minutes: a client waits a minute for a lost answer.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from knft.nft.transaction import Transaction
from knft.render import wide
from tests.packets.appearing_frontends import run_first_endpoint
from tests.support.lab.topology import Lab
from tests.support.packets.in_flight import (
    POOLS,
    InFlightResult,
    run_affinity_toggle,
    run_hairpin,
    run_layout_changes,
    run_new_chains,
)
from tests.support.packets.many_clients import add_client_addresses
from tests.support.packets.slow_chain import RULES

SEED = 7
Runs = dict[str, Callable[[], InFlightResult]]


@contextmanager
def folded(*, new_chains: bool = False, deferred_removals: bool = False) -> Iterator[None]:
    """Make new chains, or deferred removals, part of the main phase instead of a transaction of their own."""
    separate: dict[str, Any] = {} if new_chains else {"new_chains": ()}
    separate |= {} if deferred_removals else {"deferred_removals": {}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "main_phase", lambda transaction: structs.replace(transaction, **separate))
        if new_chains:
            patch.setattr(Transaction, "new_chains_phase", lambda *_: ())
        if deferred_removals:
            patch.setattr(Transaction, "cleanup_phase", lambda *_: [])
        yield


def _layout_changes(lab: Lab, folder: Path, slow_chains: Sequence[str] = POOLS) -> InFlightResult:
    factors = itertools.cycle((0, wide.COPIES_FACTOR))
    with pytest.MonkeyPatch.context() as patch:

        def change_layout() -> None:
            patch.setattr(wide, "COPIES_FACTOR", next(factors))

        return run_layout_changes(lab, folder, SEED, 100, change_layout, slow_chains=slow_chains)


def _print(title: str, runs: Runs) -> None:
    for name, run in runs.items():
        result = run()
        print(
            f"{title}, {name}: {len(result.lost)} lost, {result.during_commit} of {result.connections} connections "
            "were made during a commit",
            flush=True,
        )


def main() -> None:
    """Print the lost connections of each folded phase."""
    with Lab(local_pods=4, remote_pods=8) as lab, tempfile.TemporaryDirectory() as name:
        add_client_addresses(lab)
        folder = Path(name)
        with folded(new_chains=True):
            _print(
                "new chains in the main phase",
                {
                    "scaled, policy Local": lambda: run_new_chains(lab, folder, SEED),
                    "made sticky": lambda: run_affinity_toggle(lab, folder, SEED, 60, cluster_ip_only=False),
                    "layout changed": lambda: _layout_changes(lab, folder, ("services",)),
                },
            )
        with folded(deferred_removals=True):
            _print(
                "deferred removals in the main phase",
                {
                    "layout changed": lambda: _layout_changes(lab, folder),
                    "local endpoint removed": lambda: run_hairpin(lab, folder, SEED, 800),
                    "first endpoint added": lambda: run_first_endpoint(lab, folder, SEED, 100, 4 * RULES),
                },
            )


if __name__ == "__main__":
    main()
