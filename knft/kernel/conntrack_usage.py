"""How many entries conntrack has in this network namespace, and how many it may have."""

from contextlib import suppress
from pathlib import Path

_NETFILTER = Path("/proc/sys/net/netfilter")


def conntrack_entries() -> int | None:
    """Return the number of entries, None if the kernel does not tell."""
    return _read("nf_conntrack_count")


def conntrack_maximum() -> int | None:
    """Return the maximum number of entries, None if the kernel does not tell."""
    return _read("nf_conntrack_max")


def _read(name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int((_NETFILTER / name).read_text(encoding="ascii"))
    return None
