"""Debian packages with containerd, runc, CNI plugins and busybox, unpacked into the cache and not installed."""

import hashlib
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from deploy.image.errors import ImageError
from deploy.image.fetch import fetch_packages
from deploy.image.lock import read_packages
from deploy.image.resolve import resolve_packages
from deploy.image.variant import ARCHITECTURES, Architecture, native_architecture
from deploy.programs import cache
from deploy.programs.errors import SetupError

_LOCK_COMMAND = "python -m deploy.cluster lock"
_LOCKS = Path(__file__).with_name("locks")
_SUITE = "bookworm"
_PACKAGES = ("containerd", "runc", "containernetworking-plugins", "busybox-static")
_LIBRARIES = ("libseccomp2",)
"""The library of runc which a machine may lack; the C library is the machine's."""


class Unpacked(Struct, frozen=True):
    """The directory with the files of all packages."""

    root: Path
    libraries: Path

    @property
    def containerd(self) -> Path:
        """The containerd daemon; ctr and the shims are in the same directory."""
        return self.root / "usr/bin/containerd"

    @property
    def runc(self) -> Path:
        """The container runtime."""
        return self.root / "usr/sbin/runc"

    @property
    def cni_plugins(self) -> Path:
        """The directory of the CNI plugins."""
        return self.root / "usr/lib/cni"

    @property
    def busybox(self) -> Path:
        """The statically linked busybox."""
        return self.root / "bin/busybox"


def unpack_packages() -> Unpacked:
    """Return the unpacked packages of the lock; download and unpack what is missing. Raise SetupError if that fails."""
    try:
        architecture = native_architecture()
        lock = read_packages(_lock_file(architecture), _LOCK_COMMAND)
        folder = cache.cache_folder()
        root = folder / f"packages-{hashlib.sha256(lock.text(_LOCK_COMMAND).encode()).hexdigest()[:12]}"
        with cache.locked(folder):
            if not root.is_dir():
                files = fetch_packages(lock)
                with cache.creating(root) as partial:
                    for file in files:
                        _unpack(file, partial)
            cache.mark_used(root)
    except ImageError as error:
        raise SetupError(str(error)) from error
    return Unpacked(root, root / architecture.libraries)


def _unpack(package: Path, root: Path) -> None:
    done = subprocess.run(
        ["dpkg-deb", "--extract", str(package), str(root)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        msg = f"{package} cannot be unpacked: {done.stderr.strip()}"
        raise SetupError(msg)


def write_locks() -> None:
    """Pin the newest packages for all architectures; raise SetupError if apt cannot find them."""
    for architecture in ARCHITECTURES.values():
        wanted = {*_PACKAGES, *_LIBRARIES}
        try:
            lock = resolve_packages(_SUITE, architecture, _PACKAGES, wanted.__contains__, datetime.now(UTC))
        except ImageError as error:
            raise SetupError(str(error)) from error
        _lock_file(architecture).write_text(lock.text(_LOCK_COMMAND))


def _lock_file(architecture: Architecture) -> Path:
    return _LOCKS / f"debian12-{architecture.name}.packages"
