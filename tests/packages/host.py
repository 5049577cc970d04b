"""Host: a clean root directory of a Debian release, in which packages are installed, and a network namespace."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.roots.overlay import Overlay
from tests.packages import roots
from tests.support.lab.namespace import Namespace

_CHANGING = ("/proc", "/sys", "/dev", "/run", "/tmp", "/packages", "/manifests")  # noqa: S108 - names to leave out
_RECORDS = ("/var/cache/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/log/")
"""Where apt and dpkg record what they have done."""


class Host:
    """A view of a clean root directory; its commands run in a network namespace, so apt has no network."""

    def __init__(self, overlay: Overlay, namespace: Namespace) -> None:
        """Use a view that is mounted."""
        self._overlay = overlay
        self.namespace = namespace

    def command(self, *command: str) -> list[str]:
        """Return the command of this machine that runs a command on the host, but not in its network namespace."""
        return self._overlay.command(command)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the host; with ``check``, raise CalledProcessError if it fails."""
        return self.namespace.run(self.command(*command), check=check)

    def apt(self, *arguments: str) -> None:
        """Run apt-get without questions, and keep changed conffiles; the directory of packages is at /packages."""
        dpkg = (word for option in ("unsafe-io", "confold") for word in ("-o", f"Dpkg::Options::=--force-{option}"))
        self.run("apt-get", "-y", "-qq", "--no-install-recommends", *dpkg, *arguments)

    def files(self) -> set[str]:
        """Return the paths of all files, without records of apt and dpkg, and bytecode."""
        pruned = [word for path in _CHANGING for word in ("-path", path, "-prune", "-o")]
        found = self.run("find", "/", *pruned, "-print").stdout.splitlines()
        return {path for path in found if not path.startswith(_RECORDS) and "__pycache__" not in path}

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self.run("cat", path).stdout


@contextmanager
def new_host(release: str, packages: Path, namespace: Namespace, shared: Mapping[Path, str]) -> Iterator[Host]:
    """Yield a host with a directory of packages at /packages, and other directories of this machine."""
    with Overlay(roots.root(release), readable={packages: "/packages", **shared}) as overlay:
        yield Host(overlay, namespace)
