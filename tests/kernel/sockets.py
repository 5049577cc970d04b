"""Which netlink sockets this process has, told apart by descriptor."""

import gc
import os
import socket
from contextlib import suppress
from pathlib import Path

from knft.kernel.libnftables import Library
from knft.kernel.netlink_ports import netlink_ports


def library_and_port() -> tuple[Library, int]:
    """Return a new library and its socket's port id, which it has before its first command."""
    gc.collect()  # What goes away meanwhile would leave its descriptor to the new one.
    before = set(netfilter_sockets())
    library = Library()
    assert netlink_ports()
    (port,) = (port for descriptor, port in netfilter_sockets().items() if descriptor not in before)
    return library, port


def netfilter_sockets() -> dict[int, int]:
    """Return the port ids of this process's sockets by descriptor: one number may be in use in several namespaces."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as each:
            if (each.family, each.proto) == (socket.AF_NETLINK, 12):
                found[int(entry.name)] = int(each.getsockname()[0])
    return found
