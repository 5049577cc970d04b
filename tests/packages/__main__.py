"""``python -m tests.packages [OPTIONS FOR PYTEST]`` runs the tests of this folder."""

import subprocess
import sys
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
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    # One process for each release, because each process builds the packages that its tests use.
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", *tests, *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)


if __name__ == "__main__":
    main()
