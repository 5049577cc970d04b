"""Features of this host's libnftables and kernel; owned tables need libnftables 1.1.0 and Linux 6.9."""

import os
import subprocess


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


_COMMAND = ["nft", "--version"]
_NFT = subprocess.run(_COMMAND, capture_output=True, text=True, check=True).stdout
LIBRARY_VERSION = _NFT.split()[1].removeprefix("v")
"""The version of nft, such as "1.0.6"; distributions build it together with libnftables."""
_LIBRARY = _version(LIBRARY_VERSION)
CAN_READ_NEWER_SETS = _LIBRARY >= (1, 1)
"""Whether libnftables can read sets made by a newer version; 1.0.6 crashes."""
CAN_OWN_TABLES = _LIBRARY >= (1, 1) and _version(os.uname().release) >= (6, 9)
