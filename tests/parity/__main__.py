"""``python -m tests.parity [--seed N | --seeds N] [--changes N] [--services N] [--only COMPARISON]``."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.build import programs
from tests.cluster.setup_error import SetupError
from tests.parity.random_cluster import random_history
from tests.parity.seed_run import COMPARISONS, Lane, Problem
from tests.support.privilege import PrivilegeError, ensure_namespaces

_DEFAULT_SEEDS = 4
_SHOWN = 12


def main() -> None:
    """Run the chosen seeds; exit with status 1 if one differs."""
    given = _arguments()
    try:
        ensure_namespaces()
        release = programs().release
    except (PrivilegeError, SetupError) as error:
        sys.exit(f"test-parity: {error}")
    seeds = [given.seed] if given.seed is not None else list(range(1, given.seeds + 1))
    print(f"test-parity: kube-proxy {release}, seeds {seeds[0]} to {seeds[-1]}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Lane(Path(folder)) as lane:
        failed = [seed for seed in seeds if not _passes(lane, seed, given)]
        print(f"test-parity: {lane.counts}", flush=True)
    if failed:
        sys.exit(f"test-parity: {len(failed)} of {len(seeds)} seeds differ")


def _passes(lane: Lane, seed: int, given: argparse.Namespace) -> bool:
    history = random_history(seed, given.changes, given.services)
    problems = lane.run(history, given.only or COMPARISONS)
    if not problems:
        print(f"test-parity: seed {seed}: equal", flush=True)
        return True
    print(f"test-parity: seed {seed}: {_text(problems)}", flush=True)
    command = f"make test-parity ARGS='--seed {seed} --changes {given.changes} --services {given.services}'"
    print(f"test-parity: to run this seed alone: {command}", flush=True)
    return False


def _text(problems: Sequence[Problem]) -> str:
    lines = [f"  {problem.comparison}: {problem.text}" for problem in problems[:_SHOWN]]
    more = [f"  and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "\n".join([f"{len(problems)} differences after change {problems[0].change}", *lines, *more])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-parity", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--seeds", type=int, default=_DEFAULT_SEEDS, help="run the seeds from 1 to this number")
    parser.add_argument("--changes", type=int, default=3, help="how often each cluster changes")
    parser.add_argument("--services", type=int, default=6, help="the number of Services")
    parser.add_argument("--only", action="append", choices=COMPARISONS, help="run these comparisons only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
