"""Makes the root directory of a Debian release, by debootstrap from the mirror of the host's apt."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.image.mirrors import mirrors
from deploy.roots.errors import RootError

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_NO_MIRROR = "apt has no Debian mirror: set DEBIAN_MIRROR to the address of one"


def make_root(folder: Path, suite: str, packages: Sequence[str] = ()) -> None:
    """Make the root directory, which must be missing or empty; raise RootError if debootstrap fails."""
    _install_debootstrap()
    script = Path("/usr/share/debootstrap/scripts", suite)
    command = [
        # In a new mount namespace, because debootstrap mounts /proc.
        *("unshare", "--mount", "debootstrap", "--variant=minbase", f"--keyring={_KEYRING}"),
        *([f"--include={','.join(packages)}"] if packages else []),
        *(suite, str(folder), _mirror()),
        # An older debootstrap does not know the suite; the script of sid is the same.
        *([] if script.exists() else [str(script.with_name("sid"))]),
    ]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        msg = f"debootstrap failed; its log is {folder}/debootstrap/debootstrap.log"
        raise RootError(msg)
    _write_sources(folder, suite)


def _install_debootstrap() -> None:
    missing = [] if shutil.which("debootstrap") else ["debootstrap"]
    missing += [] if _KEYRING.exists() else ["debian-archive-keyring"]
    if not missing:
        return
    print(f"roots: system packages: {' '.join(missing)}", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        command = ["apt-get", *arguments]
        if subprocess.run(command, stdout=subprocess.DEVNULL, env=quiet, check=False).returncode != 0:
            msg = f"apt-get {arguments[0]} failed; install {' and '.join(missing)} manually"
            raise RootError(msg)


def _mirror() -> str:
    address = mirrors().get("debian")
    if address is None:
        raise RootError(_NO_MIRROR)
    return address


def _write_sources(root: Path, suite: str) -> None:
    """Let the root's apt use the release, its security updates if a mirror of them is known, and its own updates."""
    suites = {"debian": (suite, f"{suite}-updates"), "debian-security": (f"{suite}-security",)}
    known = mirrors()
    lines = [f"deb {known[area]} {name} main\n" for area, names in suites.items() if area in known for name in names]
    (root / "etc/apt/sources.list").write_text("".join(lines))
