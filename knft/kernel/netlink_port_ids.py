# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The port ids of this process's netlink sockets: notifications carry that of the socket that made the change."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NETFILTER = 12  # NETLINK_NETFILTER
_OPEN_FILES = Path("/proc/self/fd")


def netlink_port_ids() -> frozenset[int]:
    """Return the port ids of this process's NETLINK_NETFILTER sockets.

    A socket without a port id, such as libnftables' before its first command, gets one. It equals the process id only
    if no other socket in the network namespace uses that number, such as one of another container's process.
    """
    return frozenset(port for port in _port_ids() if port)


def _port_ids() -> Iterator[int]:
    for entry in _OPEN_FILES.iterdir():
        # Ignores descriptors that are closed meanwhile, such as the one of this directory listing.
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as duplicate:
                    if (duplicate.family, duplicate.proto) == (socket.AF_NETLINK, _NETFILTER):
                        if not duplicate.getsockname()[0]:
                            duplicate.bind((0, 0))
                        yield int(duplicate.getsockname()[0])
