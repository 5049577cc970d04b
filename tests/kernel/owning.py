"""Whether library and kernel can make tables that only their maker may change (1.1.0, 6.9)."""

import os
import subprocess


def _version(words: str) -> tuple[int, ...]:
    return tuple(int(part) for part in words.split(".")[:2])


_COMMAND = ["nft", "--version"]
_NFT = subprocess.run(_COMMAND, capture_output=True, text=True, check=True).stdout
_LIBRARY = _version(_NFT.split()[1].removeprefix("v"))
READS_NEWER_SETS = _LIBRARY >= (1, 1)
"""Whether it lives on where a newer library has made sets; 1.0.6 dies of them."""
CAN_OWN = _LIBRARY >= (1, 1) and _version(os.uname().release) >= (6, 9)
