"""Downloads what the locks name, into a cache outside the checkout."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from deploy.image.commands import pip, target_flags
from deploy.image.errors import ImageError
from deploy.image.lock import BUILD_WHEELS, Package, PackageLock, wheels_file
from deploy.image.mirrors import mirrors, snapshots
from deploy.image.variant import Architecture, Variant

_SECONDS = 60.0


def cache() -> Path:
    """Return the directory of the downloaded files."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "knft" / "image"


def fetch_packages(lock: PackageLock) -> list[Path]:
    """Return the files of the packages, in the lock's order; raise ImageError if one cannot be downloaded."""
    folder = cache() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    sources = (mirrors(), snapshots(lock.snapshot))
    return [_fetch(package, folder, sources) for package in lock.packages]


def _fetch(package: Package, folder: Path, sources: Iterable[Mapping[str, str]]) -> Path:
    path = folder / f"{package.sha256[:16]}-{package.file_name}"
    if path.exists() and _sha256(path.read_bytes()) == package.sha256:
        return path
    data = _download(package, sources)
    if _sha256(data) != package.sha256:
        msg = f"{package.file_name} has another SHA-256 than its lock says: renew the lock"
        raise ImageError(msg)
    # Last, and atomic: an interrupted run leaves no incomplete file with this name.
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(data)
    partial.rename(path)
    return path


def _download(package: Package, sources: Iterable[Mapping[str, str]]) -> bytes:
    """Return the file from the first source that has it: a mirror has only the newest version of a package."""
    import urllib3  # noqa: PLC0415 - only if something is missing in the cache

    pool = urllib3.PoolManager()
    reasons = []
    for areas in sources:
        if package.area not in areas:
            continue
        try:
            response = pool.request("GET", f"{areas[package.area]}/{quote(package.path, safe='/%')}", timeout=_SECONDS)
        except urllib3.exceptions.HTTPError as error:
            reasons.append(str(error))
            continue
        if response.status == 200:  # noqa: PLR2004 - HTTP's status OK
            return response.data
        reasons.append(f"HTTP status {response.status}")
    msg = f"{package.file_name} cannot be downloaded: {'; '.join(reasons) or 'no mirror is known'}"
    raise ImageError(msg)


def fetch_wheels(variant: Variant, architecture: Architecture) -> Path:
    """Return a directory that has the wheels of the lock."""
    folder = cache() / "wheels" / f"{variant.name}-{architecture.name}"
    folder.mkdir(parents=True, exist_ok=True)
    lock, marker = wheels_file(variant, architecture).read_text(), folder / "complete"
    if not (marker.exists() and marker.read_text() == lock):
        for wheel in folder.glob("*.whl"):
            wheel.unlink()
        flags = [flag for flag in target_flags(variant, architecture, folder) if flag not in ("--target", str(folder))]
        pip("download", "--no-deps", "--require-hashes", "--dest", str(folder), *flags,
            "--requirement", str(wheels_file(variant, architecture)))  # fmt: skip
        marker.write_text(lock)
    return folder


def fetch_build_wheels() -> Path:
    """Return a directory that has the wheels of the lock with which knft's wheel is built."""
    folder = cache() / "wheels" / f"build-{hashlib.sha256(BUILD_WHEELS.read_bytes()).hexdigest()[:16]}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip("download", "--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(BUILD_WHEELS))
        (folder / "complete").touch()
    return folder


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
