"""The Debian packages of the image in which upstream's tests run their commands, pinned by a lock."""

from datetime import UTC, datetime
from pathlib import Path

from deploy.image.errors import ImageError
from deploy.image.fetch import fetch_packages
from deploy.image.lock import read_packages
from deploy.image.resolve import resolve_packages
from deploy.image.variant import ARCHITECTURES, Architecture, native_architecture
from deploy.programs.errors import SetupError

_LOCK_COMMAND = "python -m tests.e2e --lock"
_LOCKS = Path(__file__).with_name("locks")
_SUITE = "bookworm"
PACKAGES = (
    *("curl", "wget", "netcat-openbsd", "bind9-dnsutils", "iproute2", "iputils-ping", "iperf"),
    *("bash", "dash", "coreutils", "grep", "sed", "mawk", "findutils", "procps", "hostname", "util-linux", "libc-bin"),
    *("netbase", "base-files"),
)
_SCRIPTS = frozenset(
    {
        *("debconf", "dpkg", "tar", "tzdata", "passwd", "adduser", "init-system-helpers", "usrmerge"),
        *("perl", "perl-base", "perl-modules-5.36", "libperl5.36", "libgdbm6", "libgdbm-compat4"),
        *("libfile-find-rule-perl", "libnumber-compare-perl", "libtext-glob-perl"),
    }
)
"""Packages that others need only for their scripts, which never run."""


def package_files() -> list[Path]:
    """Return the files of the packages; download what is missing. Raise SetupError if that fails."""
    try:
        return fetch_packages(read_packages(_lock_file(native_architecture()), _LOCK_COMMAND))
    except ImageError as error:
        raise SetupError(str(error)) from error


def write_locks() -> None:
    """Pin the newest packages for all architectures; raise SetupError if apt cannot find them."""
    for architecture in ARCHITECTURES.values():
        try:
            lock = resolve_packages(
                _SUITE, architecture, PACKAGES, lambda name: name not in _SCRIPTS, datetime.now(UTC)
            )
        except ImageError as error:
            raise SetupError(str(error)) from error
        _lock_file(architecture).write_text(lock.text(_LOCK_COMMAND))


def _lock_file(architecture: Architecture) -> Path:
    return _LOCKS / f"debian12-{architecture.name}.packages"
