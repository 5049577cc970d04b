"""Root directories in a cache outside the checkout, each made once for a release and a list of packages."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from deploy.programs.cache import creating, locked, mark_used
from deploy.roots import debootstrap
from deploy.roots.errors import RootError

_INSTALL = Path(__file__).with_name("install.sh")


class Release(Struct, frozen=True):
    """A release of Debian: its short name, and the name of its suite in an archive."""

    name: str
    suite: str


RELEASES: Mapping[str, Release] = {
    release.name: release for release in (Release("debian12", "bookworm"), Release("debian13", "trixie"))
}


def cache_folder() -> Path:
    """Return the cache's folder; create it if it is missing."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knft", "packages")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def root(release: Release, packages: Sequence[str] = (), downloads: Sequence[str] = ()) -> Path:
    """Return a root directory of the release with these packages, besides the smallest set; make it if necessary.

    apt in the root directory can install the packages ``downloads``, and all that they depend on, without a network.
    The root directory must not be changed: see ``deploy.roots.overlay``. Raises RootError if it cannot be made.
    """
    if os.geteuid() != 0:
        msg = "root directories need privilege: run this as root"
        raise RootError(msg)
    cache = cache_folder()
    names = sorted(packages), sorted(downloads)
    folder = cache / f"{release.name}-{_key(repr(names))}"
    if not folder.exists():
        with locked(cache):
            if not folder.exists():
                with creating(folder, "roots") as partial:
                    _make(partial, _base(cache, release), *names)
    mark_used(folder)
    return folder


def _key(text: str) -> str:
    sources = (Path(debootstrap.__file__).read_bytes(), _INSTALL.read_bytes())
    return hashlib.sha256(b"\0".join((text.encode(), *sources))).hexdigest()[:12]


def _base(cache: Path, release: Release) -> Path:
    """Return the root directory that debootstrap has made."""
    folder = cache / f"{release.name}-base-{_key('')}"
    if not folder.exists():
        with creating(folder, "roots") as partial:
            debootstrap.make_root(partial, release.suite)
    mark_used(folder)
    return folder


def _make(folder: Path, base: Path, packages: Sequence[str], downloads: Sequence[str]) -> None:
    subprocess.run(["cp", "--archive", "--reflink=auto", "-T", str(base), str(folder)], check=True)  # noqa: S607
    command = [
        # If this process is killed, the next one makes the directory again: nothing may still write to it.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"),
        *("--propagation", "private", "sh", str(_INSTALL), str(folder), " ".join(packages), " ".join(downloads)),
    ]
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {**proxies, "PATH": path, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"packages cannot be installed in {folder}:\n{done.stderr.strip()[-2000:]}"
        raise RootError(msg)
