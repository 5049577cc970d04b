"""Writes the locks: apt and pip decide which packages and wheels an image has.

apt gets directories of its own, so this machine's packages and lists stay as they are.
"""

import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from deploy.image.commands import pip, run, target_flags
from deploy.image.errors import ImageError
from deploy.image.lock import BUILD_WHEELS, Package, PackageLock, packages_file, wheels_file
from deploy.image.mirrors import mirrors, missing_variables
from deploy.image.variant import Architecture, Variant

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_FIELD = re.compile(r"^(Package|Filename|SHA256): (.*)$", re.MULTILINE)


def write_locks(variant: Variant, architecture: Architecture, now: datetime) -> None:
    """Write the locks of an image with what the mirrors and pip's index have now."""
    lock = resolve_packages(
        variant.suite, architecture, variant.packages, lambda name: name not in variant.excluded, now
    )
    packages_file(variant, architecture).write_text(lock.text())
    wheels_file(variant, architecture).write_text(_wheels(variant, architecture))


def resolve_packages(
    suite: str, architecture: Architecture, packages: Sequence[str], is_used: Callable[[str], bool], now: datetime
) -> PackageLock:
    """Return a lock of the newest packages of a Debian release, and of those that they depend on, if ``is_used``."""
    found = _newest_packages(suite, architecture, packages, is_used)
    return PackageLock(now.astimezone(UTC).strftime("%Y%m%dT%H0000Z"), tuple(found))


def _newest_packages(
    suite: str, architecture: Architecture, packages: Sequence[str], is_used: Callable[[str], bool]
) -> Iterator[Package]:
    areas = mirrors()
    if missing := missing_variables(areas):
        msg = f"apt has no mirror of Debian: set {missing} to the address of one"
        raise ImageError(msg)
    with tempfile.TemporaryDirectory() as folder:
        apt = private_apt(Path(folder), suite, architecture, areas)
        run(["apt-get", *apt, "update"])
        simulated = run(["apt-get", *apt, "install", "--simulate", "--no-install-recommends", *packages])
        chosen = re.findall(r"^Inst (\S+) \((\S+) ", simulated, re.MULTILINE)
        for name, version in chosen:
            if is_used(name):
                yield _package(apt, name, version)


def _package(apt: tuple[str, ...], name: str, version: str) -> Package:
    record = dict(_FIELD.findall(run(["apt-cache", *apt, "show", f"{name}={version}"])))
    area = "debian-security" if record["Filename"].startswith("pool/updates/") else "debian"
    return Package(record["SHA256"], area, record["Filename"])


def private_apt(folder: Path, suite: str, architecture: Architecture, areas: Mapping[str, str]) -> tuple[str, ...]:
    """Return flags for apt with which it reads and writes in ``folder`` only, and no package is installed yet."""
    for name in ("state/lists/partial", "cache/archives/partial", "empty"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    suites = {"debian": suite, "debian-security": f"{suite}-security"}
    sources = [f"deb [signed-by={_KEYRING}] {areas[area]} {each} main\n" for area, each in suites.items()]
    (folder / "sources.list").write_text("".join(sources))
    options = {
        "Dir::State": "state",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
        "Dir::Etc::sourcelist": "sources.list",
        "Dir::Etc::sourceparts": "empty",
        "Dir::Etc::preferencesparts": "empty",
    }
    return (
        *(word for option, name in options.items() for word in ("-o", f"{option}={folder / name}")),
        *("-o", f"APT::Architecture={architecture.name}", "-o", f"APT::Architectures::={architecture.name}"),
        *("-o", "APT::Sandbox::User=root", "-o", "APT::Get::AllowUnauthenticated=false"),
    )


def _wheels(variant: Variant, architecture: Architecture) -> str:
    """Return a requirements file with the newest wheels that the project's dependencies allow."""
    dependencies = tomllib.loads(_PROJECT.read_text())["project"]["dependencies"]
    return _resolve_wheels(dependencies, target_flags(variant, architecture, Path("unused")))


def write_build_lock() -> None:
    """Write the lock of the wheels that build knft's own wheel."""
    BUILD_WHEELS.write_text(_resolve_wheels(tomllib.loads(_PROJECT.read_text())["build-system"]["requires"], ()))


def _resolve_wheels(dependencies: Sequence[str], flags: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pip("install", "--dry-run", "--ignore-installed", "--report", str(report), *flags, *dependencies)
        found = json.loads(report.read_text())["install"]
    lines = sorted(
        f"{each['metadata']['name'].lower()}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in found
    )
    return "\n".join(["# Written by python -m deploy.image --lock.", *lines, ""])
