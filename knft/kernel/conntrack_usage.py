"""Reads conntrack's usage of this network namespace: entries, their maximum, and packets that it could not track.

The kernel sends one answer for each CPU: nfgenmsg, then attributes CTA_STATS_..., 32-bit numbers in network byte order.
"""

import struct
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from knft.errors import KernelError
from knft.kernel import netlink_messages
from knft.kernel.netlink_dump import dump

_NETFILTER = Path("/proc/sys/net/netfilter")

_NETLINK_NETFILTER = 12
_GET_STATISTICS = 1 << 8 | 4  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET_STATS_CPU
_NFGENMSG = struct.pack("=BBH", 0, 0, 0)
_INSERT_FAILED, _DROP, _EARLY_DROP = 9, 10, 11  # CTA_STATS_...
_NUMBER = struct.Struct(">I")


class ConntrackStatistics(Struct, frozen=True):
    """How many entries could not be inserted, packets were dropped, and entries were dropped to make room."""

    insert_failures: int
    drops: int
    early_drops: int


def conntrack_entries() -> int | None:
    """Return the number of entries, None if the kernel does not tell."""
    return _read("nf_conntrack_count")


def conntrack_maximum() -> int | None:
    """Return the maximum number of entries, None if the kernel does not tell."""
    return _read("nf_conntrack_max")


def conntrack_statistics() -> ConntrackStatistics:
    """Return the statistics of the calling thread's network namespace, the sums of all CPUs.

    /proc/net/stat/nf_conntrack has them only in kernels with CONFIG_NF_CONNTRACK_PROCFS. Raises KernelError if the
    kernel refuses, for example without the module nf_conntrack_netlink.
    """
    try:
        answers = dump(_NETLINK_NETFILTER, _GET_STATISTICS, _NFGENMSG, _GET_STATISTICS)
    except OSError as error:
        msg = f"cannot read the statistics of conntrack: {error.strerror}"
        raise KernelError(msg) from error
    fields = [netlink_messages.payloads(answer, len(_NFGENMSG), len(answer)) for answer in answers]
    insert_failures, drops, early_drops = (
        sum(_NUMBER.unpack(each[kind])[0] for each in fields if kind in each)
        for kind in (_INSERT_FAILED, _DROP, _EARLY_DROP)
    )
    return ConntrackStatistics(insert_failures, drops, early_drops)


def _read(name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int((_NETFILTER / name).read_text(encoding="ascii"))
    return None
