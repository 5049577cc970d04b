"""Debian 12's cloud kernel: downloaded and unpacked into a cache, never installed.

The cache is outside the checkout, so other runs and other checkouts use it too.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.vm.errors import VmError

SERIES = "6.1"
_META_PACKAGE = "linux-image-cloud-amd64"
_ASK_FOR_PACKAGE = ("apt-cache", "depends", _META_PACKAGE)
_DEPENDENCY = re.compile(r"Depends: (linux-image-(\S+))")


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel and its modules."""

    tree: Path
    release: str

    @property
    def image(self) -> Path:
        """The kernel image."""
        return self.tree / "boot" / f"vmlinuz-{self.release}"

    @property
    def all_modules(self) -> Path:
        """The directory to mount at ``/lib/modules`` in the guest."""
        return self.tree / "lib" / "modules"

    def modules(self, names: Iterable[str]) -> list[Path]:
        """Return the files of the modules and their dependencies, in loading order."""
        folder = self.all_modules / self.release
        lines = (line.partition(":") for line in (folder / "modules.dep").read_text().splitlines())
        needs = {Path(file).stem: [*reversed(needed.split()), file] for file, _, needed in lines}
        return [folder / file for file in dict.fromkeys(file for name in names for file in needs[name])]


def fetch() -> Kernel:
    """Return the newest kernel of the series that apt offers, from the cache if it is there."""
    package, release = _newest_package()
    tree = _cache() / package
    if not tree.is_dir():
        _unpack(package, release, tree)
    return Kernel(tree, release)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "knft" / "kernels"


def _newest_package() -> tuple[str, str]:
    found = _offered_package()
    if found is None:
        print("test-vm: updating the package lists to find a kernel", flush=True)
        _run("apt-get", "update", "-qq")
        found = _offered_package()
    if found is None:
        msg = f"no package {_META_PACKAGE} {SERIES}: add the package sources of Debian 12 on amd64"
        raise VmError(msg)
    return found


def _offered_package() -> tuple[str, str] | None:
    output = subprocess.run(_ASK_FOR_PACKAGE, capture_output=True, text=True, check=False)
    offered = [(package, release) for package, release in _DEPENDENCY.findall(output.stdout)]
    return next((pair for pair in offered if pair[1].startswith(f"{SERIES}.")), None)


def _unpack(package: str, release: str, tree: Path) -> None:
    print(f"test-vm: downloading {package} (about 27 MB) into {tree}, without installing it", flush=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
        # Without this, apt warns that its sandbox user cannot write here.
        _run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package, cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        unpacked = Path(folder, "tree")
        _run("dpkg", "-x", str(archive), str(unpacked))
        _run("depmod", "-b", str(unpacked), release)
        # Last, and atomic: an interrupted run leaves no incomplete directory with this name.
        unpacked.rename(tree)


def _run(*command: str, cwd: str | None = None) -> None:
    done = subprocess.run(command, stdout=sys.stderr, cwd=cwd, check=False)
    if done.returncode != 0:
        msg = f"{' '.join(command)} failed with status {done.returncode}"
        raise VmError(msg)
