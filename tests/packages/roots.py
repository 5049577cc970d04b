"""Root directories for tests of installed packages; ``deploy.roots.overlay.Overlay`` gives a writable view of one."""

from collections.abc import Sequence
from pathlib import Path

from deploy.packages.releases import CLEAN, TARGETS, TOOLS
from deploy.roots import cached


def root(release: str, packages: Sequence[str] = ()) -> Path:
    """Return a clean root directory of ``debian12`` or ``debian13`` with systemd, dbus and further packages.

    knft's package can be installed in a view of it without a network: apt has all that it depends on.
    """
    target = TARGETS[release]
    return cached.root(target.release, (*CLEAN, *packages), target.runtime)


def testbed(release: str) -> Path:
    """Return a clean root directory for autopkgtest, which needs a program of apt-utils."""
    return root(release, ("apt-utils",))


def tools() -> Path:
    """Return a root directory of Debian 13 with lintian, rpmlint, autopkgtest and twine."""
    return cached.root(TARGETS["debian13"].release, TOOLS)
