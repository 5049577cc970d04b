"""``python -m tests.image [OPTIONS FOR PYTEST]`` runs the tests of this folder."""

import subprocess
import sys
from pathlib import Path

from tests.support.privilege import PrivilegeError, ensure_namespaces

CHECKOUT = Path(__file__).parents[2]


def main() -> None:
    """Run the tests."""
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"test-image: {error}")
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    command = [sys.executable, "-m", "pytest", *tests, *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)


if __name__ == "__main__":
    main()
