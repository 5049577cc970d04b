import re
import shutil
from contextlib import closing
from pathlib import Path

from deploy.packages.debian_source import add_debian_tree, unpack
from deploy.packages.releases import TARGETS
from deploy.roots.overlay import Overlay
from tests.packages import roots
from tests.packages.conftest import SECONDS, Packages
from tests.support.lab.namespace import Namespace

# Writes go to memory. autopkgtest does not mount /proc in a chroot.
MOUNT_TESTBED = """
mkdir /testbed /tmp/upper /tmp/work &&
mount -t overlay -o lowerdir=/clean,upperdir=/tmp/upper,workdir=/tmp/work overlay /testbed &&
mount -t proc proc /testbed/proc && mount --bind /dev /testbed/dev && exec "$@"
"""


def test_autopkgtest_tests_the_installed_package(packages: Packages, sdist: Path, tmp_path: Path) -> None:
    """The tests of debian/tests pass in a chroot, without a network."""
    target = TARGETS[packages.release]
    (tmp_path / "sources").mkdir()
    sources = unpack(sdist, tmp_path / "sources")
    add_debian_tree(sources, target, SECONDS)
    _check_wheels(sources, has_wheels=target.has_wheels)
    # Marks a built tree: an unbuilt one needs dpkg-dev in the testbed.
    (sources / "debian/files").touch()
    shown = {packages.newest: f"/packages/{packages.newest.name}", sources: "/source"}
    autopkgtest = ("autopkgtest", "--no-built-binaries", *shown.values(), "--", "chroot", "/testbed")
    with (
        closing(Namespace.create("autopkgtest")) as namespace,
        Overlay(roots.tools(), readable={roots.testbed(packages.release): "/clean", **shown}) as overlay,
    ):
        done = namespace.run(overlay.command(("sh", "-c", MOUNT_TESTBED, "sh", *autopkgtest)), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "knft serves connections" in done.stdout + done.stderr


def _check_wheels(sources: Path, *, has_wheels: bool) -> None:
    """Check the wheels of a Debian source tree, and delete them."""
    wheels = sources / "wheels"
    assert wheels.exists() == has_wheels
    if not has_wheels:
        return
    names = {path.name.partition("-")[0] for path in wheels.glob("*.whl")}
    copyright_file = (sources / "debian/copyright").read_text()
    assert set(re.findall(r"^Files: wheels/(\w+)-\S+\.whl$", copyright_file, re.MULTILINE)) == names
    pinned = (wheels / "runtime.lock").read_text()
    for text in (*names, pinned):
        assert not re.search("pip.nftables", text)
    assert pinned.count("==") == pinned.count("--hash=sha256:") > 0
    shutil.rmtree(wheels)
