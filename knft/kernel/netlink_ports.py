"""Which netlink sockets are this process's own: the kernel names the socket, by its port id, that made a change."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NETFILTER = 12  # NETLINK_NETFILTER
_OPEN_FILES = Path("/proc/self/fd")


def netlink_ports() -> frozenset[int]:
    """Return the port ids of this process's NETLINK_NETFILTER sockets.

    A socket that has none yet, as libnftables' before its first command, is given one. The number is the process id
    only where nobody in the network namespace has it already, such as another container's process.
    """
    return frozenset(port for port in _ports() if port)


def _ports() -> Iterator[int]:
    for entry in _OPEN_FILES.iterdir():
        # What is closed meanwhile, by another thread or by this listing's own end, is not of interest.
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as duplicate:
                    if (duplicate.family, duplicate.proto) == (socket.AF_NETLINK, _NETFILTER):
                        if not duplicate.getsockname()[0]:
                            duplicate.bind((0, 0))
                        yield int(duplicate.getsockname()[0])
