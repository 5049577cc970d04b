"""Builds user-mode Linux from the kernel source of Debian 12, once, into the cache of kernels.

Debian's own package ``user-mode-linux`` has nf_tables without the families ip, ip6 and inet.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.programs.cache import creating, locked
from tests.vm.errors import VmError
from tests.vm.guest_process import DIE_WITH_PARENT, OWN_PROCESSES
from tests.vm.kernel import Kernel, cache, run

CONFIG = Path(__file__).with_name("user_mode.config")
"""The options that are set; all others are off."""
_PACKAGE = "linux-source-6.1"
_RECIPE = 1
"""Increase it if a kernel of the cache has to be built again, although its options are the same."""
# No other architecture's code is needed, and no device's. Kconfig reads the Kconfig files of all of them.
_UNUSED = ("drivers/gpu", "drivers/media", "drivers/net/ethernet", "drivers/net/wireless", "sound", "Documentation")
_SUFFIXES = ("c", "h", "S", "rst", "yaml", "txt")
_SHARED_OPTION = re.compile(r"CONFIG_((?:NF|NFT|NETFILTER|IP_VS|IP_SET|IP_NF|IP6_NF|BRIDGE|DUMMY|VETH)(?:_\w+)?)=[my]")


@dataclass(frozen=True, slots=True)
class UserModeKernel(Kernel):
    """A kernel that is a program of this machine, and its modules."""

    @property
    def image(self) -> Path:
        """The program."""
        return self.tree / "linux"


def fetch() -> UserModeKernel:
    """Return a kernel 6.1 with the options of CONFIG, from the cache if it is there.

    It is not built again for newer source: delete its folder for that.
    """
    cache().mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(f"{_RECIPE} {CONFIG.read_text()}".encode()).hexdigest()[:12]
    tree = cache() / f"user-mode-{digest}"
    with locked(cache()):
        if not tree.is_dir():
            with creating(tree, "test-vm") as folder:
                _build(folder)
    (modules,) = (tree / "lib" / "modules").iterdir()
    return UserModeKernel(tree, modules.name)


def check_options(wanted: Path, written: Path) -> None:
    """Raise VmError if the kernel's configuration lacks a line of ``wanted``: an option that it depends on is off."""
    lines = set(written.read_text().splitlines())
    missing = [line for line in wanted.read_text().splitlines() if line.startswith("CONFIG_") and line not in lines]
    if missing:
        msg = f"{wanted}: options that depend on others which are off: {', '.join(missing)}"
        raise VmError(msg)


def check_debian_has_options(wanted: Path, debian: Path) -> None:
    """Raise VmError if the tests may use a module of the network that Debian's kernel lacks."""
    offered = set(_SHARED_OPTION.findall(debian.read_text()))
    missing = [name for name in _SHARED_OPTION.findall(wanted.read_text()) if name not in offered]
    if missing:
        msg = f"{wanted}: options that Debian's kernel does not have: {', '.join(missing)}"
        raise VmError(msg)


def _build(tree: Path) -> None:
    """Build the newest source that apt offers."""
    source = tree / "source"
    source.mkdir()
    _extract(_download(tree), source)
    _compile(source, tree)
    shutil.rmtree(source)


def _download(folder: Path) -> Path:
    """Download the package of the source."""
    # Without this, apt warns that its sandbox user cannot write here.
    command = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", _PACKAGE)
    print(f"test-vm: downloading {_PACKAGE} (about 140 MB)", flush=True)
    if subprocess.run(command, cwd=folder, check=False).returncode != 0:
        print("test-vm: updating the package lists", flush=True)
        run("apt-get", "update", "-qq")
        run(*command, cwd=str(folder))
    (package,) = folder.glob("*.deb")
    return package


def _extract(package: Path, source: Path) -> None:
    """Unpack the archive that is in the package, without what is not needed here, and delete the package."""
    left_out = [f"--exclude=*/{folder}/*.{suffix}" for folder in _UNUSED for suffix in _SUFFIXES]
    unpack = ["tar", "-xJ", "-C", str(source), "--strip-components=1", "--wildcards-match-slash", *left_out]
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -x --to-stdout --wildcards "./usr/src/*.tar.xz" | { shift; "$@"; }'
    run("sh", "-ec", script, "sh", str(package), *unpack)
    package.unlink()


def _compile(source: Path, tree: Path) -> None:
    """Build the program and its modules, and install them into ``tree``."""
    print("test-vm: compiling user-mode Linux, for five to ten minutes", flush=True)
    make = ("make", "-s", "ARCH=um", f"-j{len(os.sched_getaffinity(0))}")
    _run_in(source, ("env", f"KCONFIG_ALLCONFIG={CONFIG}", *make, "allnoconfig"))
    check_options(CONFIG, source / ".config")
    _run_in(source, (*make, "linux", "modules"))
    _run_in(source, (*make, f"INSTALL_MOD_PATH={tree}", "INSTALL_MOD_STRIP=1", "modules_install"))
    (source / "linux").rename(tree / "linux")
    (modules,) = (tree / "lib" / "modules").iterdir()
    for link in ("build", "source"):
        (modules / link).unlink(missing_ok=True)
    run("depmod", "-b", str(tree), modules.name)


def _run_in(folder: Path, command: Sequence[str]) -> None:
    """Run a command; show what it printed only if it fails, because the kernel's build prints many warnings."""
    # Not the variables of the make that runs the tests.
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"LC_ALL": "C"}
    done = subprocess.run(
        [*DIE_WITH_PARENT, *OWN_PROCESSES, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        msg = f"{' '.join(command)} failed with status {done.returncode}"
        raise VmError(msg)
