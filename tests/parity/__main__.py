"""Run knft beside the real kube-proxy; exit with status 1 if a seed differs, or if ``--faults`` are not found."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from tests.parity.faults import FAULTS, MAX_SEEDS
from tests.parity.preparation import prepare
from tests.parity.random_cluster import History, manifests, random_history
from tests.parity.seed_run import COMPARISONS, Problem, Testbed
from tests.parity.shrink import MAX_RUNS, shrink

_DEFAULT_SEEDS = 5
_SHOWN = 12


def main() -> None:
    """Run the chosen seeds or faults."""
    given = _arguments()
    _print(f"kube-proxy {prepare('test-parity')}")
    with tempfile.TemporaryDirectory() as folder, Testbed(Path(folder)) as testbed:
        if given.broken:
            testbed.nodes.knft.command = _broken_knft(given.broken)
        problem = _run_faults(testbed, given) if given.faults is not None else _run_seeds(testbed, given)
        _print(str(testbed.counts))
    if problem:
        sys.exit(f"test-parity: {problem}")


def _print(text: str) -> None:
    print(f"test-parity: {text}", flush=True)


def _run_seeds(testbed: Testbed, given: argparse.Namespace) -> str:
    """Run the seeds; return what is wrong, "" for nothing."""
    seeds = [given.seed] if given.seed is not None else list(range(1, given.seeds + 1))
    failed = [seed for seed in seeds if not _passes(testbed, seed, given)]
    return f"{len(failed)} of {len(seeds)} seeds differ" if failed else ""


def _passes(testbed: Testbed, seed: int, given: argparse.Namespace) -> bool:
    history = random_history(seed, given.changes, given.services)
    problems = testbed.run(history, tuple(given.only or COMPARISONS))
    if not problems:
        _print(f"seed {seed}: equal")
        return True
    _print(f"seed {seed}: {_text(problems)}")
    _print(f"to run this seed alone: make test-parity ARGS='--seed {seed} --changes {given.changes}"
         f" --services {given.services} --only {problems[0].comparison}'")  # fmt: skip
    _shrink(testbed, history, problems, given.shrink_runs)
    return False


def _shrink(testbed: Testbed, history: History, problems: Sequence[Problem], max_runs: int) -> None:
    """Print the smallest cluster found that still differs in the same comparison."""
    comparison = problems[0].comparison
    until = msgspec.structs.replace(history, clusters=history.clusters[: problems[0].change + 1])
    latest = list(problems)

    def differs(candidate: History) -> bool:
        found = testbed.run(candidate, (comparison,))
        if found:
            latest[:] = found
        return bool(found)

    smallest = shrink(until, differs, max_runs)
    if smallest == until:
        return
    _print(f"a smaller cluster that differs, after {len(smallest.clusters) - 1} changes: {_text(latest)}")
    print(f"flags: {' '.join(smallest.settings.flags)}")
    for cluster in smallest.clusters:
        # JSON first: msgspec's values and shared lists would become tags and anchors.
        print(yaml.safe_dump_all(json.loads(json.dumps(manifests(cluster)))), flush=True)


def _run_faults(testbed: Testbed, given: argparse.Namespace) -> str:
    """Run seeds with each fault until one differs; return the faults that are not found, "" for none."""
    chosen = given.faults or list(FAULTS)
    return ", ".join(f"fault {name!r} is not found" for name in chosen if not _is_found(testbed, name, given))


def _is_found(testbed: Testbed, name: str, given: argparse.Namespace) -> bool:
    usual, testbed.nodes.knft.command = testbed.nodes.knft.command, _broken_knft(name)
    try:
        for seed in range(1, MAX_SEEDS + 1):
            problems = testbed.run(random_history(seed, given.changes, given.services), ("packets",))
            if problems:
                where = f"seed {seed}, after {problems[0].change} changes, {len(problems)} packets"
                _print(f"fault {name!r} ({FAULTS[name].description}): found by {where}, such as {problems[0].text}")
                return True
        _print(f"fault {name!r} ({FAULTS[name].description}): not found by {MAX_SEEDS} seeds")
        return False
    finally:
        testbed.nodes.knft.command = usual


def _broken_knft(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", "tests.parity.faulty_knft", name


def _text(problems: Sequence[Problem]) -> str:
    lines = [f"  {problem.comparison}: {problem.text}" for problem in problems[:_SHOWN]]
    more = [f"  and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "\n".join([f"{len(problems)} differences after {problems[0].change} changes", *lines, *more])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-parity", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--seeds", type=int, default=_DEFAULT_SEEDS, help="run the seeds from 1 to this number")
    parser.add_argument("--changes", type=int, default=3, help="how often each cluster changes")
    parser.add_argument("--services", type=int, default=6, help="the number of Services")
    parser.add_argument("--only", action="append", choices=COMPARISONS, help="run this comparison only")
    parser.add_argument(
        "--shrink-runs", type=int, default=MAX_RUNS, help="how many smaller clusters to try if a seed differs"
    )
    parser.add_argument(
        "--faults", nargs="*", choices=list(FAULTS), help="break knft in these ways, by default in all, and find them"
    )
    parser.add_argument("--broken", choices=list(FAULTS), help="run the seeds with knft broken in this way")
    return parser.parse_args()


if __name__ == "__main__":
    main()
