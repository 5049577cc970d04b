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
from tests.parity.seed_run import COMPARISONS, PROGRAM, Problem, Testbed
from tests.parity.shrink import MAX_RUNS, shrink
from tests.support.waiting import TIMEOUT

_DEFAULT_SEEDS, _DEFAULT_CHANGES, _DEFAULT_SERVICES = 5, 3, 6
_SHRINK_TIMEOUT = 30.0
"""Seconds for a proxy to program a smaller cluster, if it did not program the whole one."""
_SHOWN = 12


def main() -> None:
    """Run the chosen seeds or faults."""
    given = _arguments(sys.argv[1:])
    _print(f"kube-proxy {prepare('test-parity')}")
    with tempfile.TemporaryDirectory() as folder, Testbed(Path(folder)) as testbed:
        if given.broken:
            testbed.nodes.knft.command = _broken_knft(given.broken)
        problem = _run_faults(testbed, given) if given.faults is not None else _run_seeds(testbed, given)
        _print(str(testbed.counts))
        _print(f"conntrack entries that the proxies treat differently: {testbed.uses}")
    if problem:
        sys.exit(f"test-parity: {problem}")


def _print(text: str) -> None:
    print(f"test-parity: {text}", flush=True)


def _run_seeds(testbed: Testbed, given: argparse.Namespace) -> str:
    """Run the seeds; return what is wrong, "" for nothing."""
    seeds = [given.seed] if given.seed is not None else list(range(1, given.seeds + 1))
    failed = [seed for seed in seeds if not _passes(testbed, seed, given)]
    if failed:
        return f"{len(failed)} of {len(seeds)} seeds differ"
    unused = testbed.uses.unused() if _needs_all_exceptions(given) else []
    return f"no seed needs these exceptions of tests/parity/exceptions.py: {'; '.join(unused)}" if unused else ""


def _needs_all_exceptions(given: argparse.Namespace) -> bool:
    """Tell whether the run contains the default seeds with all comparisons."""
    is_default = given.services == _DEFAULT_SERVICES and given.changes >= _DEFAULT_CHANGES
    return is_default and given.seed is None and given.seeds >= _DEFAULT_SEEDS and not given.only and not given.broken


def _passes(testbed: Testbed, seed: int, given: argparse.Namespace) -> bool:
    history = random_history(seed, given.changes, given.services)
    problems = testbed.run(history, tuple(given.only or COMPARISONS))
    if not problems:
        _print(f"seed {seed}: equal")
        return True
    _report(testbed, seed, problems, given, given.broken)
    return False


def _report(testbed: Testbed, seed: int, problems: Sequence[Problem], given: argparse.Namespace, fault: str) -> None:
    """Print the problems of a seed, the command that runs it alone, and a smaller cluster with the first problem."""
    _print(f"seed {seed}: {_text(problems)}")
    _print(f"to run this seed alone: {command_of(seed, given.changes, given.services, problems[0].comparison, fault)}")
    history = random_history(seed, given.changes, given.services)
    testbed.nodes.timeout = _SHRINK_TIMEOUT
    _shrink(testbed, history, problems, given.shrink_runs)
    testbed.nodes.timeout = TIMEOUT


def command_of(seed: int, changes: int, services: int, comparison: str, fault: str = "") -> str:
    """Return the command that runs a seed alone."""
    broken = f" --broken {fault}" if fault else ""
    return (
        f"make test-parity ARGS='--seed {seed} --changes {changes} --services {services} --only {comparison}{broken}'"
    )


def _shrink(testbed: Testbed, history: History, problems: Sequence[Problem], max_runs: int) -> None:
    """Print the smallest cluster found that still differs in the same comparison."""
    comparison = problems[0].comparison
    until = msgspec.structs.replace(history, clusters=history.clusters[: problems[0].change + 1])
    latest = list(problems)

    def differs(candidate: History) -> bool:
        found = [one for one in testbed.run(candidate, (comparison,)) if one.comparison == comparison]
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
            if any(problem.comparison == PROGRAM for problem in problems):
                # A fault makes knft treat packets wrongly. If knft fails, the fault shows nothing.
                _report(testbed, seed, problems, given, name)
                return False
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


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-parity", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--seeds", type=int, default=_DEFAULT_SEEDS, help="run the seeds from 1 to this number")
    parser.add_argument("--changes", type=int, default=_DEFAULT_CHANGES, help="how often each cluster changes")
    parser.add_argument("--services", type=int, default=_DEFAULT_SERVICES, help="the number of Services")
    parser.add_argument("--only", action="append", choices=(*COMPARISONS, PROGRAM), help="run this comparison only")
    parser.add_argument(
        "--shrink-runs", type=int, default=MAX_RUNS, help="how many smaller clusters to try if a seed differs"
    )
    parser.add_argument(
        "--faults", nargs="*", choices=list(FAULTS), help="break knft in these ways, by default in all, and find them"
    )
    parser.add_argument("--broken", default="", choices=list(FAULTS), help="run the seeds with knft broken in this way")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
