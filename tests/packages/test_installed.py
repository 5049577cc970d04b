import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from deploy.packages.debian_source import add_debian_tree, unpack
from deploy.packages.releases import TARGETS
from deploy.roots import cached
from deploy.roots.overlay import Overlay
from tests.packages import roots
from tests.packages.conftest import SECONDS, Packages
from tests.support.lab.namespace import Namespace

# Those that use click, jsonschema and pyroute2. The command of the sdist is not installed.
TESTS = ("tests/cli/test_command_line.py", "tests/cli/test_render.py", "tests/configuration", "tests/leftovers")
LEFT_OUT = "--deselect=tests/cli/test_command_line.py::test_console_script_is_installed"


def test_autopkgtest_tests_the_installed_package(packages: Packages, sdist: Path, tmp_path: Path) -> None:
    """The tests of debian/tests pass in a chroot, without a network."""
    target = TARGETS[packages.release]
    (tmp_path / "sources").mkdir()
    sources = unpack(sdist, tmp_path / "sources")
    add_debian_tree(sources, target, SECONDS)
    shutil.rmtree(sources / "wheels", ignore_errors=True)
    # Marks a built tree: an unbuilt one needs dpkg-dev in the testbed.
    (sources / "debian/files").touch()
    shown = {packages.newest: f"/packages/{packages.newest.name}", sources: "/source"}
    with (
        _copy_of(roots.testbed(packages.release)) as testbed,
        closing(Namespace.create("autopkgtest")) as namespace,
        Overlay(roots.tools(), writable={testbed: "/testbed"}, readable=shown) as overlay,
    ):
        # autopkgtest does not mount /proc in a chroot.
        script = 'mount -t proc proc /testbed/proc && mount --bind /dev /testbed/dev && exec "$@"'
        autopkgtest = ("autopkgtest", "--no-built-binaries", *shown.values(), "--", "chroot", "/testbed")
        command = ("sh", "-c", script, "sh", *autopkgtest)
        done = namespace.run(overlay.command(command), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "knft serves connections" in done.stdout + done.stderr


@contextmanager
def _copy_of(root: Path) -> Iterator[Path]:
    """Yield a copy of a root directory, which autopkgtest changes."""
    with tempfile.TemporaryDirectory(prefix="knft-testbed-") as folder:
        copy = Path(folder, "root")
        # Not shutil: it would read the device files.
        subprocess.run(["cp", "--archive", str(root), str(copy)], check=True)  # noqa: S607
        yield copy


def test_knfts_tests_pass_with_debians_own_python_packages(sdist: Path, tmp_path: Path) -> None:
    """Debian 13 has the oldest versions that pyproject.toml accepts of click, jsonschema and pyroute2."""
    target = TARGETS["debian13"]
    sources = unpack(sdist, tmp_path)
    pytest = ("python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not property", LEFT_OUT, *TESTS)
    script = 'cd /knft && exec "$@"'
    with (
        closing(Namespace.create("tests")) as namespace,
        Overlay(cached.root(target.release, target.build), writable={sources: "/knft"}) as overlay,
    ):
        namespace.run(["ip", "link", "set", "lo", "up"])
        command = overlay.command(["sh", "-c", script, "sh", *pytest], {"PYTHONPATH": "/knft/compat:/knft"})
        done = namespace.run(command, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
