import shutil
import subprocess
from contextlib import closing
from pathlib import Path

from deploy.packages.debian_source import add_debian_tree, unpack
from deploy.packages.releases import TARGETS
from deploy.roots import cached
from deploy.roots.overlay import Overlay
from tests.packages import roots
from tests.packages.conftest import SECONDS, Packages
from tests.support.lab.namespace import Namespace

TESTS = ("tests/cli", "tests/configuration", "tests/leftovers")
# They need shells, and knft installed by pip; the command of the sdist is not installed.
LEFT_OUT = (
    *("--ignore=tests/cli/test_completion.py", "--ignore=tests/cli/test_version.py"),
    "--deselect=tests/cli/test_command_line.py::test_console_script_is_installed",
)


def test_autopkgtest_tests_the_installed_package(packages: Packages, sdist: Path, tmp_path: Path) -> None:
    """The tests of debian/tests pass in a chroot, without a network."""
    target = TARGETS[packages.release]
    testbed = tmp_path / "testbed"
    shutil.copytree(roots.root(packages.release), testbed, symlinks=True)
    (tmp_path / "sources").mkdir()
    sources = unpack(sdist, tmp_path / "sources")
    add_debian_tree(sources, target, SECONDS)
    shutil.rmtree(sources / "wheels", ignore_errors=True)
    shown = {packages.newest: f"/packages/{packages.newest.name}", sources: "/source"}
    with (
        closing(Namespace.create("autopkgtest")) as namespace,
        Overlay(roots.tools(), writable={testbed: "/testbed"}, readable=shown) as overlay,
    ):
        command = ("autopkgtest", "--no-built-binaries", *list(shown.values()), "--", "chroot", "/testbed")
        done = namespace.run(overlay.command(command), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "knft serves connections" in done.stdout + done.stderr


def test_knfts_tests_pass_with_debians_own_python_packages(sdist: Path, tmp_path: Path) -> None:
    """Debian 13 has the oldest versions that pyproject.toml accepts of click, jsonschema and pyroute2."""
    target = TARGETS["debian13"]
    sources = unpack(sdist, tmp_path)
    pytest = ("python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not property", *LEFT_OUT, *TESTS)
    script = 'cd /knft && exec "$@"'
    with Overlay(cached.root(target.release, target.build), writable={sources: "/knft"}) as overlay:
        command = overlay.command(["sh", "-c", script, "sh", *pytest], {"PYTHONPATH": "/knft/compat:/knft"})
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
