"""Adds a Debian source tree to knft's sources, so that dpkg-buildpackage can build them."""

import os
import re
import shutil
import tarfile
from email.utils import formatdate
from pathlib import Path

from deploy.image.fetch import fetch_build_wheels, fetch_wheels
from deploy.image.lock import BUILD_WHEELS, wheels_file
from deploy.image.variant import VARIANTS, native_architecture
from deploy.packages.errors import PackageError
from deploy.packages.releases import Target
from deploy.packages.wheel_licences import wheel_paragraphs

_TREES = Path(__file__).with_name("debian")
_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)
_PRE_RELEASE = re.compile(r"(?<=\d)(a|b|rc)(?=\d)")
_REVISION = 1
_CHANGELOG = """knft ({version}) {suite}; urgency=medium

  * Package knft {upstream}. CHANGELOG.md has the changes.

 -- The knft authors <maintainers@knft.dev>  {date}
"""
_BINDING = "pip-nftables=="
"""The wheel of libnftables' binding, instead of which the package uses Debian's."""


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist into ``folder``; return the directory of the sources."""
    with tarfile.open(sdist) as packed:
        packed.extractall(folder)  # noqa: S202 - built by deploy.distributions
    (sources,) = folder.iterdir()
    return sources


def version_of(sources: Path) -> str:
    """Return the version in the sources."""
    found = _VERSION.search((sources / "knft/__init__.py").read_text())
    if found is None:
        msg = f"{sources}/knft/__init__.py has no version"
        raise PackageError(msg)
    return found["version"]


def package_version(upstream: str, target: Target) -> str:
    """Return the version of a release's package; an older release has a lower one, so that its upgrade replaces it.

    Without the tildes, the upstream version is that of Python again.
    """
    # Pre-releases sort before the release, and .dev1 before all others.
    sorted_early = _PRE_RELEASE.sub(r"~\1", upstream)
    sorted_early = sorted_early.replace(".dev", "~dev" if "~" in sorted_early else "~~dev")
    return f"{sorted_early}-{_REVISION}~{target.release.name.replace('debian', 'deb')}"


def add_debian_tree(sources: Path, target: Target, seconds: int) -> None:
    """Write ``debian/`` into the sources; the changelog has the time ``seconds`` since 1970."""
    debian = sources / "debian"
    for tree in ("common", target.release.name):
        shutil.copytree(_TREES / tree, debian, dirs_exist_ok=True)
    for name in ("service", "sysusers"):
        shutil.copy(sources / "deploy/systemd" / f"knft.{name}", debian / f"knft.{name}")
    upstream = version_of(sources)
    changelog = _CHANGELOG.format(
        version=package_version(upstream, target),
        suite=target.release.suite,
        upstream=upstream,
        date=formatdate(seconds),
    )
    (debian / "changelog").write_text(changelog)
    if target.has_wheels:
        _add_wheels(sources / "wheels", target)
    for path in sources.rglob("*"):
        os.utime(path, (seconds, seconds))  # debhelper only lowers times


def _add_wheels(folder: Path, target: Target) -> None:
    """Copy the wheels that the locks of the image name, with the locks, except libnftables' binding."""
    folder.mkdir()
    variant, architecture = VARIANTS[target.release.name], native_architecture()
    for source in (fetch_wheels(variant, architecture), fetch_build_wheels()):
        for wheel in source.glob("*.whl"):
            if not wheel.name.startswith("pip_nftables-"):
                shutil.copy(wheel, folder)
    lines = wheels_file(variant, architecture).read_text().splitlines(keepends=True)
    with (folder.parent / "debian/copyright").open("a", encoding="utf-8") as file:
        file.write(wheel_paragraphs(folder.glob("*.whl")))
        file.write((_TREES / "wheels.copyright").read_text())
    (folder / "runtime.lock").write_text("".join(line for line in lines if not line.startswith(_BINDING)))
    shutil.copy(BUILD_WHEELS, folder / "build.lock")
