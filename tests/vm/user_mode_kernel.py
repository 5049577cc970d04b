"""Builds user-mode Linux from the kernel source of Debian 12, once, into the cache of kernels.

Debian's own package ``user-mode-linux`` has nf_tables without the families ip, ip6 and inet.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.errors import VmError
from tests.vm.kernel import Kernel, cache, run

_PACKAGE = "linux-source-6.1"
_CONFIG = Path(__file__).with_name("user_mode.config")
# No other architecture's code is needed, and no device's. Kconfig reads the Kconfig files of all of them.
_UNUSED = ("drivers/gpu", "drivers/media", "drivers/net/ethernet", "drivers/net/wireless", "sound", "Documentation")
_SUFFIXES = ("c", "h", "S", "rst", "yaml", "txt")
_SECONDS_BETWEEN_LOOKS = 60 * 24 * 3600
"""For so long a kernel of the cache is used without a look for newer source: to build one takes minutes."""


@dataclass(frozen=True, slots=True)
class UserModeKernel(Kernel):
    """A kernel that is a program of this machine, and its modules."""

    @property
    def image(self) -> Path:
        """The program."""
        return self.tree / "linux"


def fetch() -> UserModeKernel:
    """Return a kernel 6.1 with the options of ``user_mode.config``, from the cache if it is there."""
    options = hashlib.sha256(_CONFIG.read_bytes()).hexdigest()[:12]
    trees = sorted(cache().glob(f"user-mode-*-{options}"), key=lambda tree: tree.stat().st_mtime)
    if not trees or trees[-1].stat().st_mtime < time.time() - _SECONDS_BETWEEN_LOOKS:
        trees.append(_build(options))
    (modules,) = (trees[-1] / "lib" / "modules").iterdir()
    return UserModeKernel(trees[-1], modules.name)


def _build(options: str) -> Path:
    """Build the newest source that apt offers, if it is not built; return the directory with the kernel."""
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        package = _download(Path(folder))
        version = package.name.split("_")[1]
        tree = cache() / f"user-mode-{version}-{options}"
        if not tree.is_dir():
            print(f"test-vm: building user-mode Linux from {_PACKAGE} {version}, for some minutes", flush=True)
            source, built = Path(folder, "source"), Path(folder, "tree")
            _extract(package, source)
            _compile(source, built)
            # Last, and atomic: an interrupted run leaves no incomplete directory with this name.
            built.rename(tree)
    os.utime(tree)
    return tree


def _download(folder: Path) -> Path:
    """Download the package of the source."""
    # Without this, apt warns that its sandbox user cannot write here.
    command = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", _PACKAGE)
    print(f"test-vm: downloading {_PACKAGE} (about 140 MB)", flush=True)
    if subprocess.run(command, cwd=folder, check=False, stderr=subprocess.DEVNULL).returncode != 0:
        run("apt-get", "update", "-qq")
        run(*command, cwd=str(folder))
    (package,) = folder.glob("*.deb")
    return package


def _extract(package: Path, source: Path) -> None:
    """Unpack the archive that is in the package, without what is not needed here."""
    source.mkdir()
    left_out = [f"--exclude=*/{folder}/*.{suffix}" for folder in _UNUSED for suffix in _SUFFIXES]
    unpack = ["tar", "-xJ", "-C", str(source), "--strip-components=1", "--wildcards-match-slash", *left_out]
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -x --to-stdout --wildcards "./usr/src/*.tar.xz" | { shift; "$@"; }'
    run("sh", "-ec", script, "sh", str(package), *unpack)


def _compile(source: Path, tree: Path) -> None:
    """Build the program and its modules, and install them into ``tree``."""
    make = ("make", "-s", "ARCH=um", f"-j{len(os.sched_getaffinity(0))}")
    _run_in(source, ("env", f"KCONFIG_ALLCONFIG={_CONFIG}", *make, "allnoconfig"))
    check_options(_CONFIG, source / ".config")
    _run_in(source, (*make, "linux", "modules"))
    _run_in(source, (*make, f"INSTALL_MOD_PATH={tree}", "INSTALL_MOD_STRIP=1", "modules_install"))
    (tree / "linux").write_bytes((source / "linux").read_bytes())
    (tree / "linux").chmod(0o755)
    (modules,) = (tree / "lib" / "modules").iterdir()
    for link in ("build", "source"):
        (modules / link).unlink(missing_ok=True)
    run("depmod", "-b", str(tree), modules.name)


def check_options(wanted: Path, written: Path) -> None:
    """Raise VmError if the kernel's configuration lacks a line of ``wanted``: an option that it depends on is off."""
    lines = set(written.read_text().splitlines())
    missing = [line for line in wanted.read_text().splitlines() if line.startswith("CONFIG_") and line not in lines]
    if missing:
        msg = f"{wanted}: options that depend on others which are off: {', '.join(missing)}"
        raise VmError(msg)


def _run_in(folder: Path, command: Sequence[str]) -> None:
    """Run a command; show what it printed only if it fails, because the kernel's build prints many warnings."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        msg = f"{' '.join(command)} failed with status {done.returncode}"
        raise VmError(msg)
