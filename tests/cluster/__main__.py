"""``python -m tests.cluster [OPTIONS FOR PYTEST]``: builds missing programs, and runs the tests of this folder."""

import subprocess
import sys
from pathlib import Path

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.support.privilege import PrivilegeError, ensure_namespaces

CHECKOUT = Path(__file__).parent.parent.parent
TESTS = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py"))]


def main() -> None:
    """Build the programs and run the tests."""
    try:
        ensure_namespaces()
        built = programs()
    except (PrivilegeError, SetupError) as error:
        sys.exit(f"test-cluster: {error}")
    print(f"test-cluster: Kubernetes {built.release}", flush=True)
    # Files in the arguments replace all files of this folder.
    named = [word for word in sys.argv[1:] if word.startswith("tests/")]
    command = [sys.executable, "-m", "pytest", *([] if named else TESTS), *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)


if __name__ == "__main__":
    main()
