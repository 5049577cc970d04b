"""Makes the root directory of an image: unpacks packages and wheels, without running any of them."""

import csv
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from deploy.image.commands import pip, target_flags
from deploy.image.errors import ImageError
from deploy.image.prune import is_unused
from deploy.image.variant import Architecture, Variant

SITE_PACKAGES = "usr/lib/python3/dist-packages"
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Symbolic links into ``usr``; some packages still have files in these directories."""
_DIRECTORIES = {"dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o755, "run": 0o755, "sys": 0o755, "tmp": 0o1777}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_COMMAND = """#!/usr/bin/python3 -I
import sys

from knft.cli.main import main

sys.exit(main())
"""


def make_root(
    root: Path, variant: Variant, architecture: Architecture, packages: Iterable[Path], wheels: Sequence[Path]
) -> None:
    """Fill the empty directory ``root``; raise ImageError if a package or wheel cannot be unpacked."""
    unpack_packages(root, packages)
    (root / "usr/bin/python3").symlink_to(f"python{variant.python}")
    _install(root / SITE_PACKAGES, variant, architecture, wheels)
    command = root / "usr/bin/knft"
    command.write_text(_COMMAND)
    command.chmod(0o755)


def unpack_packages(root: Path, packages: Iterable[Path]) -> None:
    """Fill the empty directory ``root`` with Debian packages; raise ImageError if one cannot be unpacked."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for name, mode in _DIRECTORIES.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    for package in packages:
        _unpack(package, root)
    for name, text in _FILES.items():
        (root / name).write_text(text)


def _unpack(package: Path, root: Path) -> None:
    try:
        done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError) as error:
        msg = f"{package} cannot be unpacked with dpkg-deb: {error}"
        raise ImageError(msg) from error
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(root, members=_used_members(archive, package_name(package)))  # noqa: S202 - checked by SHA-256


def package_name(file: Path) -> str:
    """Return the name of the package in a file of the cache, such as ``0123456789abcdef-libc6_2.36-9_amd64.deb``."""
    return file.name.partition("-")[2].partition("_")[0]


def _used_members(archive: tarfile.TarFile, package: str) -> Iterator[tarfile.TarInfo]:
    """Yield the files to unpack, under their merged paths."""
    for member in archive:
        member.name = _merged(member.name)
        if member.islnk():
            member.linkname = _merged(member.linkname)
        if member.name in ("", ".", "usr", *(f"usr/{name}" for name in _MERGED)):
            continue
        if not is_unused(member.name, package):
            yield member


def _merged(name: str) -> str:
    path = PurePosixPath(name)
    return str("usr" / path) if path.parts and path.parts[0] in _MERGED else str(path)


def _install(folder: Path, variant: Variant, architecture: Architecture, wheels: Sequence[Path]) -> None:
    # By name and not by path: pip would record the path, which differs from build to build.
    folders = dict.fromkeys(str(wheel.parent) for wheel in wheels)
    sources = [word for each in folders for word in ("--find-links", each)]
    requirements = ["==".join(wheel.name.split("-")[:2]) for wheel in sorted(wheels)]
    flags = target_flags(variant, architecture, folder)
    pip("install", "--no-deps", "--no-index", "--no-compile", *sources, *flags, *requirements)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder.parents[3]))
        if not path.is_dir() and is_unused(name):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for record in folder.glob("*.dist-info/RECORD"):
        _keep_existing(record)


def _keep_existing(record: Path) -> None:
    """Remove the files from pip's record that are not in the image.

    The digest of a removed command would differ from build to build: its first line has the path of the build's Python.
    """
    folder = record.parents[1]
    lines = record.read_text().splitlines(keepends=True)
    rows = zip(csv.reader(lines), lines, strict=True)
    record.write_text("".join(line for (name, *_), line in rows if (folder / name).exists()))
