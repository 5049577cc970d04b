"""Prints the version of libnftables in use; exits with status 1 if it is older than 1.1."""

import json
import os
import platform
import subprocess
import sys

from knft.kernel.process import WorkerProcess

OLDEST = (1, 1)
COMMAND = ("nft", "--version")


def main() -> None:
    """Print the versions of libnftables, nft, Python and the kernel."""
    nft_version = subprocess.run(COMMAND, capture_output=True, text=True, check=True).stdout.strip()
    # The library that the binding has loaded may be another one than that of the nft command.
    with WorkerProcess() as library:
        version = str(json.loads(library.run("list tables"))["nftables"][0]["metainfo"]["version"])
    print(
        f"libnftables {version}; {nft_version}; Python {platform.python_version()}; Linux {os.uname().release}",
        flush=True,
    )
    if any(numbers(word) < OLDEST for word in (version, nft_version.split()[1].removeprefix("v"))):
        sys.exit("test-trixie: libnftables is older than 1.1")


def numbers(version: str) -> tuple[int, ...]:
    """Return a version such as ``1.1.3`` as numbers."""
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
