"""Builds Debian packages in root directories of their releases, without a network."""

import shutil
from pathlib import Path

from deploy.packages.debian_source import add_debian_tree
from deploy.packages.errors import PackageError
from deploy.packages.releases import Target
from deploy.roots import cached
from deploy.roots.errors import RootError
from deploy.roots.overlay import Overlay

_BUILD = "umask 022 && cd /build/{name} && exec dpkg-buildpackage --build=binary --no-sign --ignore-builtin-builddeps"
_FOLDER = "/build"
"""The same path in all builds, because some files may contain it."""


def build_package(sources: Path, target: Target, seconds: int, output: Path) -> Path:
    """Build the package of the sources, to which this adds ``debian/``, and return its path in ``output``.

    Next to it are the .changes and .buildinfo files. Raises PackageError or RootError if that is not possible.
    """
    add_debian_tree(sources, target, seconds)
    folder = sources.parent
    root = cached.root(target.release, target.build)
    try:
        with Overlay(root, writable={folder: _FOLDER}) as overlay:
            overlay.run("unshare", "--net", "sh", "-c", _BUILD.format(name=sources.name))
    except RootError as error:
        msg = f"the package for {target.release.name} cannot be built: {error}"
        raise PackageError(msg) from error
    output.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("knft_*"):
        shutil.copy(path, output)
    (package,) = folder.glob("knft_*.deb")
    return output / package.name
