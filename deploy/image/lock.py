"""Locks: the packages and wheels of an image, each by its SHA-256."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from deploy.image.errors import ImageError
from deploy.image.variant import Architecture, Variant

_COMMAND = "python -m deploy.image --lock"
FOLDER = Path(__file__).with_name("locks")
_SNAPSHOT = "# snapshot.debian.org has all of them at "
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) (?P<area>[a-z-]+) (?P<path>pool/[\w./+~%-]+\.deb)")


class Package(Struct, frozen=True):
    """A Debian package: a file of an archive ``area`` (debian or debian-security)."""

    sha256: str
    area: str
    path: str
    """The path below the address of a mirror of the area."""

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return PurePosixPath(self.path).name


class PackageLock(Struct, frozen=True):
    """The packages of an image, and when snapshot.debian.org had all of them, such as 20261123T000000Z."""

    snapshot: str
    packages: tuple[Package, ...]

    def text(self, command: str = _COMMAND) -> str:
        """Return the lock as the text of its file, which names the command that renews it."""
        lines = sorted(f"{each.sha256} {each.area} {each.path}" for each in self.packages)
        lines.sort(key=lambda line: line.partition(" ")[2])
        return "\n".join([f"# Written by {command}.", f"{_SNAPSHOT}{self.snapshot}", *lines, ""])


def packages_file(variant: Variant, architecture: Architecture) -> Path:
    """Return the path of the lock of an image's packages."""
    return FOLDER / f"{variant.name}-{architecture.name}.packages"


def wheels_file(variant: Variant, architecture: Architecture) -> Path:
    """Return the path of the lock of an image's wheels, which is a requirements file of pip."""
    return FOLDER / f"{variant.name}-{architecture.name}.wheels"


BUILD_WHEELS = FOLDER / "build.wheels"
"""The lock of the wheels that build knft's own wheel, on any machine."""


def read_packages(path: Path, command: str = _COMMAND) -> PackageLock:
    """Return the lock in a file; raise ImageError if it cannot be read."""
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        msg = f"{path} does not exist: run {command}"
        raise ImageError(msg) from error
    snapshot = "".join(line.removeprefix(_SNAPSHOT) for line in text.splitlines() if line.startswith(_SNAPSHOT))
    return PackageLock(snapshot, tuple(_packages(path, text.splitlines())))


def _packages(path: Path, lines: Iterable[str]) -> Iterator[Package]:
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            msg = f"{path}:{number}: not a package: {line!r}"
            raise ImageError(msg)
        yield Package(**found.groupdict())
