"""The addresses of Debian's archives: from the environment, from this machine's apt, and of snapshot.debian.org."""

import os
import shutil
import subprocess
from collections.abc import Mapping

_VARIABLES = {"debian": "DEBIAN_MIRROR", "debian-security": "DEBIAN_SECURITY_MIRROR"}
_LABELS = {"debian": "Debian", "debian-security": "Debian-Security"}


def mirrors() -> Mapping[str, str]:
    """Return the address of a mirror for each area, without those that are unknown."""
    found = {area: os.environ.get(variable) or _from_apt(area) for area, variable in _VARIABLES.items()}
    return {area: address.rstrip("/") for area, address in found.items() if address}


def snapshots(time: str) -> Mapping[str, str]:
    """Return the addresses that have for each area what Debian had at a time, such as 20261123T000000Z."""
    return {area: f"https://snapshot.debian.org/archive/{area}/{time}" for area in _VARIABLES}


def missing_variables(areas: Mapping[str, str]) -> str:
    """Return the environment variables that name the mirrors which are unknown."""
    return " and ".join(variable for area, variable in _VARIABLES.items() if area not in areas)


def _from_apt(area: str) -> str:
    if shutil.which("apt-get") is None:
        return ""
    filters = ["Created-By: Packages", "Origin: Debian", f"Label: {_LABELS[area]}", "Component: main"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *filters]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return next((line for line in done.stdout.splitlines() if line.startswith(("http://", "https://"))), "")
