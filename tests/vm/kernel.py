"""The cloud kernels of Debian 12 and 13: downloaded and unpacked into a cache, never installed.

The cache is outside the checkout, so other runs and other checkouts use it too.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.image.mirrors import mirrors
from deploy.image.resolve import private_apt
from deploy.image.variant import ARCHITECTURES, VARIANTS, Variant
from tests.vm.errors import VmError

_META_PACKAGE = "linux-image-cloud-amd64"
_DEPENDENCY = re.compile(r"Depends: (linux-image-(\S+))")
_SECONDS_BETWEEN_LOOKS = 7 * 24 * 3600
"""For so long a kernel of the cache is used without a look for a newer one, if that needs package lists of its own."""


@dataclass(frozen=True, slots=True)
class Series:
    """The kernels of a Debian release, by the beginning of their version; ``variant`` is None for this machine's."""

    version: str
    variant: Variant | None = None


DEBIAN12 = Series("6.1")
DEBIAN13 = Series("6.12", VARIANTS["debian13"])


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
    def config(self) -> Path:
        """The options with which it was built."""
        return self.tree / "boot" / f"config-{self.release}"

    @property
    def all_modules(self) -> Path:
        """The directory to mount at ``/lib/modules`` in the guest."""
        return self.tree / "lib" / "modules"

    def modules(self, names: Iterable[str]) -> list[Path]:
        """Return the files of the modules and their dependencies, in loading order."""
        folder = self.all_modules / self.release
        lines = (line.partition(":") for line in (folder / "modules.dep").read_text().splitlines())
        needs = {Path(file).name.partition(".ko")[0]: [*reversed(needed.split()), file] for file, _, needed in lines}
        builtin = folder / "modules.builtin"
        found = {Path(line).stem for line in builtin.read_text().splitlines()} if builtin.exists() else set()
        loaded = [name for name in names if name not in found]
        return [folder / file for file in dict.fromkeys(file for name in loaded for file in needs[name])]


def fetch(series: Series) -> Kernel:
    """Return the newest kernel of the series that apt offers, from the cache if it is there."""
    if series.variant is None:
        package, release = _newest_package(series, ())
        tree = cache() / package
        if not tree.is_dir():
            _unpack(package, release, tree, ())
        return Kernel(tree, release)
    return _recent(series) or _fetch_with_own_lists(series, series.variant)


def _recent(series: Series) -> Kernel | None:
    """Return the kernel of the series in the cache, None if it is missing or was not looked for recently."""
    for tree in sorted(cache().glob(f"linux-image-{series.version}.*"), reverse=True):
        if tree.stat().st_mtime > time.time() - _SECONDS_BETWEEN_LOOKS:
            return Kernel(tree, tree.name.removeprefix("linux-image-"))
    return None


def _fetch_with_own_lists(series: Series, variant: Variant) -> Kernel:
    """Look for the newest kernel in the package lists of another Debian release, which this machine need not have."""
    with tempfile.TemporaryDirectory() as folder:
        apt = private_apt(Path(folder), variant.suite, ARCHITECTURES["amd64"], mirrors())
        print(f"test-vm: reading the package lists of {variant.suite} to find a kernel", flush=True)
        run("apt-get", *apt, "update", "-qq")
        package, release = _newest_package(series, apt)
        tree = cache() / package
        if not tree.is_dir():
            _unpack(package, release, tree, apt)
    os.utime(tree)
    return Kernel(tree, release)


def cache() -> Path:
    """Return the directory of the kernels, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "knft" / "kernels"


def _newest_package(series: Series, apt: Sequence[str]) -> tuple[str, str]:
    found = _offered_package(series, apt)
    if found is None and series.variant is None:
        print("test-vm: updating the package lists to find a kernel", flush=True)
        run("apt-get", "update", "-qq")
        found = _offered_package(series, apt)
    if found is None:
        msg = f"no package {_META_PACKAGE} {series.version}: add the package sources of Debian on amd64"
        raise VmError(msg)
    return found


def _offered_package(series: Series, apt: Sequence[str]) -> tuple[str, str] | None:
    command = ["apt-cache", *apt, "depends", _META_PACKAGE]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    offered = [(package, release) for package, release in _DEPENDENCY.findall(output.stdout)]
    return next((pair for pair in offered if pair[1].startswith(f"{series.version}.")), None)


def _unpack(package: str, release: str, tree: Path, apt: Sequence[str]) -> None:
    print(f"test-vm: downloading {package} (about 27 MB) into {tree}, without installing it", flush=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
        # Without this, apt warns that its sandbox user cannot write here.
        run("apt-get", *apt, "download", "-qq", "-o", "APT::Sandbox::User=root", package, cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        unpacked = Path(folder, "tree")
        run("dpkg", "-x", str(archive), str(unpacked))
        if not (unpacked / "lib").exists():
            (unpacked / "lib").symlink_to("usr/lib")  # Debian 13's packages have no files in /lib.
        run("depmod", "-b", str(unpacked), release)
        # Last, and atomic: an interrupted run leaves no incomplete directory with this name.
        unpacked.rename(tree)


def run(*command: str, cwd: str | None = None) -> None:
    """Run a command, with its output on standard error; raise VmError if it fails."""
    done = subprocess.run(command, stdout=sys.stderr, cwd=cwd, check=False)
    if done.returncode != 0:
        msg = f"{' '.join(command)} failed with status {done.returncode}"
        raise VmError(msg)
