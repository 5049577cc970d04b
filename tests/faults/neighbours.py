"""The kernel's neighbour tables, whose size is one for all network namespaces of the machine."""

from pathlib import Path

_COLUMN = "table_fulls"


def full_tables() -> int:
    """Return how often the kernel had no room for another neighbour since it started."""
    return sum(count_full((Path("/proc/net/stat") / name).read_text()) for name in ("arp_cache", "ndisc_cache"))


def count_full(statistics: str) -> int:
    """Return the sum of a table's statistics over all CPUs; the numbers are hexadecimal."""
    head, *rows = (line.split() for line in statistics.splitlines())
    return sum(int(row[head.index(_COLUMN)], 16) for row in rows)
