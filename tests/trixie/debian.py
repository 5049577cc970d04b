"""Makes the root directory of Debian 13."""

from pathlib import Path

from deploy.roots import debootstrap
from deploy.roots.errors import RootError
from tests.trixie.errors import TrixieError

SUITE = "trixie"
# The packages that tests/install.sh installs, and make.
PACKAGES = (
    *("ca-certificates", "conntrack", "libnftables1", "make", "mount", "netbase", "nftables", "python3"),
    "python3-venv",
)


def make_root(folder: Path) -> None:
    """Make the root directory, which must not exist; raise TrixieError if debootstrap fails."""
    try:
        debootstrap.make_root(folder, SUITE, PACKAGES)
    except RootError as error:
        raise TrixieError(str(error)) from error
