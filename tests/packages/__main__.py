"""``python -m tests.packages [OPTIONS FOR PYTEST]`` runs the tests of this folder."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.packages.releases import TARGETS
from deploy.roots import cached
from deploy.roots.errors import RootError
from tests.packages import roots

CHECKOUT = Path(__file__).parents[2]


def main() -> None:
    """Make the root directories, and run the tests."""
    try:
        for name, target in TARGETS.items():
            cached.root(target.release, target.build)
            roots.root(name)
            roots.testbed(name)
        roots.tools()
    except RootError as error:
        sys.exit(f"test-packages: {error}")
    sys.exit(_run_in_one_process(sys.argv[1:]) if sys.argv[1:] else _run_in_two_processes())


def _run_in_two_processes() -> int:
    """Run the tests of each release in a process of its own, which builds the package once."""
    (first, *_) = TARGETS
    processes = [_start_pytest("-k", selection) for selection in (first, f"not {first}")]
    statuses = [process.wait() for process in processes]
    # That of a killed process is negative.
    return next((status for status in statuses if status != 0), 0)


def _run_in_one_process(options: Sequence[str]) -> int:
    return _start_pytest(*options).wait()


def _start_pytest(*options: str) -> "subprocess.Popen[bytes]":
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    return subprocess.Popen([sys.executable, "-m", "pytest", "-q", "--durations=5", *tests, *options], cwd=CHECKOUT)


if __name__ == "__main__":
    main()
