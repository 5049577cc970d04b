"""``python -m tests.trixie [COMMAND]`` runs the tests, or a command, in the root directory of Debian 13."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

from deploy.packages.releases import TARGETS
from deploy.roots import cached, debootstrap
from deploy.roots.errors import RootError
from tests.trixie import debian
from tests.trixie.errors import TrixieError
from tests.trixie.host import environment, shared_paths

CHECKOUT = Path(__file__).parent.parent.parent
TESTS = (
    *("tests/packets/test_scenarios.py", "tests/packets/test_invalid_packets.py", "tests/packets/test_draining.py"),
    *("tests/packets/test_loopback_nodeports.py", "tests/packets/test_consistent_hashing.py"),
    "tests/packets/test_hashed_connections.py",
    *("tests/kernel", "tests/sync", "tests/cli"),
)
# They need shells, ip or iptables, which the root directory lacks, and knft loads no rules in them.
LEFT_OUT = (
    "--ignore=tests/cli/test_completion.py",
    "--deselect=tests/cli/test_terminal.py::test_changes_that_diff_watches_are_folded_and_coloured",
)
PYTHON = ".venv/bin/python"
# Three processes although other test jobs use a core, because many tests wait for packets that must not arrive.
PARALLEL = ("-n", "3", "--dist", "worksteal")
# With Debian's own Python packages: tests of what uses click, jsonschema, msgspec and pyroute2, whose versions are the
# oldest that pyproject.toml accepts. The console script and column(1) are not installed, and with libnftables 1.1 no
# other program can change knft's tables while it runs.
WITH_DEBIANS_PACKAGES = (
    *("tests/cli/test_command_line.py", "tests/cli/test_render.py", "tests/configuration", "tests/control"),
    *("tests/explain", "tests/leftovers"),
    "--deselect=tests/cli/test_command_line.py::test_console_script_is_installed",
    "--deselect=tests/control/test_running_knft.py::test_foreign_change_is_in_status_and_history",
    "--deselect=tests/control/test_audit.py::test_audit_finds_a_change_that_knft_has_overlooked",
    "--deselect=tests/control/test_explain.py::test_affinity_entries_and_connections_are_shown",
    "--deselect=tests/control/test_nodes.py",
)
_ENTER = Path(__file__).with_name("enter.sh")
_UNUSED_DAYS = 30


def main(command: Sequence[str]) -> int:
    """Run the command, or the tests without one, in the root directory; return the exit status."""
    try:
        root, venv = _prepare()
        if command:
            return _enter(root, venv, command)
        version = _enter(root, venv, [PYTHON, "-m", "tests.trixie.version"])
        return version or _run_tests(root, venv) or _run_with_debians_packages(venv)
    except (RootError, TrixieError) as problem:
        print(f"test-trixie: {problem}", file=sys.stderr)
        return 2


def _prepare() -> tuple[Path, Path]:
    """Return the root directory and the virtual environment; make them if they are not in the cache."""
    if os.geteuid() != 0:
        msg = "root directories need privilege: run this as root"
        raise TrixieError(msg)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knft", "trixie")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        makers = (debian.__file__, debootstrap.__file__)
        root = cache / f"root-{_key(*makers)}"
        venv = cache / f"venv-{_key(*makers, CHECKOUT / 'pyproject.toml', CHECKOUT / 'tests/install.sh')}"
        if not root.exists():
            with _making(root) as partial:
                debian.make_root(partial)
        if not venv.exists():
            with _making(venv) as partial:
                partial.mkdir()
                if _enter(root, partial, ["make", "install"], mode="rw") != 0:
                    msg = "cannot create the virtual environment"
                    raise TrixieError(msg)
        for folder in (root, venv):
            os.utime(folder)
        # Make this file newer than the inputs, so that make does not reinstall; the directory's name has their hash.
        (venv / ".installed").touch()
        _delete_unused(cache)
    return root, venv


def _key(*paths: str | Path) -> str:
    return hashlib.sha256(b"\0".join(Path(path).read_bytes() for path in paths)).hexdigest()[:12]


@contextmanager
def _making(folder: Path) -> Iterator[Path]:
    """Yield a temporary path at which to make a directory; rename it to ``folder`` at the end of the block."""
    print(f"test-trixie: making {folder}", flush=True)
    started = time.monotonic()
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    partial.rename(folder)
    print(f"test-trixie: made in {time.monotonic() - started:.0f} s", flush=True)


def _delete_unused(cache: Path) -> None:
    for folder in [*cache.glob("root-*"), *cache.glob("venv-*")]:
        if folder.stat().st_mtime < time.time() - _UNUSED_DAYS * 24 * 3600:
            shutil.rmtree(folder)


def _enter(root: Path, venv: Path, command: Sequence[str], *, mode: str = "ro", results: Path | None = None) -> int:
    """Run a command in the checkout inside the root directory; return its status, and copy /results.

    ``mode`` (ro or rw) is that of the virtual environment.
    """
    variables = environment()
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    with tempfile.TemporaryDirectory(prefix="knft-trixie-") as scratch:
        places = [str(path) for path in (root, CHECKOUT, venv, mode, scratch)]
        entering = ["sh", str(_ENTER), *places, *shared_paths(variables), "--"]
        status = subprocess.run([*namespaces, *entering, *command], env=variables, check=False).returncode
        if results is not None:
            shutil.copytree(Path(scratch, "results"), results, dirs_exist_ok=True)
    return status


def _run_tests(root: Path, venv: Path) -> int:
    pytest = [
        PYTHON,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        *PARALLEL,
        "--junitxml=/results/junit.xml",
        *LEFT_OUT,
        *TESTS,
    ]
    with tempfile.TemporaryDirectory(prefix="knft-trixie-") as results:
        status = _enter(root, venv, pytest, results=Path(results))
        report = Path(results, "junit.xml")
        counts = count(report) if report.exists() else Counter()
    print(f"test-trixie: {', '.join(f'{ran} tests of {name}' for name, ran in counts.items())}")
    if status == 0 and not all(counts[name] for name in TESTS):
        msg = "no test ran for some of the tested directories"
        raise TrixieError(msg)
    return status


def _run_with_debians_packages(venv: Path) -> int:
    """Run tests in the root directory in which the package is built; the virtual environment is not used."""
    target = TARGETS["debian13"]
    root = cached.root(target.release, target.build)
    print("test-trixie: tests with Debian's own Python packages", flush=True)
    python = ["env", "PYTHONPATH=/knft/compat:/knft", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "-m"]
    pytest = ["pytest", "-q", "-p", "no:cacheprovider", "-m", "not property", *WITH_DEBIANS_PACKAGES]
    return _enter(root, venv, [*python, *pytest])


def count(report: Path) -> Counter[str]:
    """Return how many tests of each entry of TESTS ran; skipped ones did not."""
    ran = [case for case in ET.parse(report).iter("testcase") if case.find("skipped") is None]  # noqa: S314 - our own
    names = [case.get("classname", "").replace(".", "/") for case in ran]
    return Counter({test: sum(name.startswith(test.removesuffix(".py")) for name in names) for test in TESTS})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
