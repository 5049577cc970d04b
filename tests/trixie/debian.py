"""Makes the root directory of Debian 13, by debootstrap from the mirror of the host's apt."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.trixie.errors import TrixieError

SUITE = "trixie"
# The packages that tests/install.sh installs, and make.
PACKAGES = (
    *("ca-certificates", "conntrack", "libnftables1", "make", "mount", "netbase", "nftables", "python3"),
    "python3-venv",
)
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MIRROR_VARIABLE = "DEBIAN_MIRROR"
_NO_MIRROR = f"apt has no Debian mirror: set {_MIRROR_VARIABLE} to the address of one"


def make_root(folder: Path) -> None:
    """Make the root directory, which must not exist; raise TrixieError if debootstrap fails."""
    _install_debootstrap()
    script = Path("/usr/share/debootstrap/scripts", SUITE)
    command = [
        # In a new mount namespace, because debootstrap mounts /proc.
        *("unshare", "--mount", "debootstrap", "--variant=minbase", f"--keyring={_KEYRING}"),
        *(f"--include={','.join(PACKAGES)}", SUITE, str(folder), _mirror()),
        # An older debootstrap does not know the suite; the script of sid is the same.
        *([] if script.exists() else [str(script.with_name("sid"))]),
    ]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        msg = f"debootstrap failed; its log is {folder}/debootstrap/debootstrap.log"
        raise TrixieError(msg)


def _install_debootstrap() -> None:
    missing = [] if shutil.which("debootstrap") else ["debootstrap"]
    missing += [] if _KEYRING.exists() else ["debian-archive-keyring"]
    if not missing:
        return
    print(f"test-trixie: system packages: {' '.join(missing)}", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        command = ["apt-get", *arguments]
        if subprocess.run(command, stdout=subprocess.DEVNULL, env=quiet, check=False).returncode != 0:
            msg = f"apt-get {arguments[0]} failed; install {' and '.join(missing)} manually"
            raise TrixieError(msg)


def _mirror() -> str:
    """Return the address of the Debian mirror: from the environment, or apt's."""
    if given := os.environ.get(_MIRROR_VARIABLE):
        return given
    filters = ["Created-By: Packages", "Origin: Debian", "Label: Debian", "Component: main"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *filters]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    addresses = [line for line in done.stdout.splitlines() if line.startswith(("http://", "https://", "file:"))]
    if not addresses:
        raise TrixieError(_NO_MIRROR)
    return addresses[0]
