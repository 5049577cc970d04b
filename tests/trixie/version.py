"""Which libnftables is in use, by its own word; exit status 1 where it is older than 1.1."""

import json
import os
import platform
import subprocess
import sys

from knft.kernel.libnftables import Library

OLDEST = (1, 1)
COMMAND = ("nft", "--version")


def main() -> None:
    """Print the versions of what the tests run on."""
    said = subprocess.run(COMMAND, capture_output=True, text=True, check=True).stdout.strip()
    # What the binding has loaded, which is not what the command was built with by necessity.
    version = str(json.loads(Library().run("list tables"))["nftables"][0]["metainfo"]["version"])
    print(f"libnftables {version}; {said}; Python {platform.python_version()}; Linux {os.uname().release}", flush=True)
    if any(numbers(word) < OLDEST for word in (version, said.split()[1].removeprefix("v"))):
        sys.exit("test-trixie: this libnftables is older than 1.1")


def numbers(version: str) -> tuple[int, ...]:
    """Return ``1.1.3`` as numbers."""
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
