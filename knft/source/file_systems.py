"""The types of mounted file systems."""

import os
from pathlib import Path


def file_system_type(device: int) -> str:
    """Return the type of the mounted file system with this device number, such as ``nfs4``; "" if it is not found."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2] == number:
            return file_system.split()[0]
    return ""
