"""Tells which netfilter netlink sockets of a network namespace are open.

/proc lists the sockets of all processes in the namespace, also of those in other containers, whose process ids are not
visible.
"""

from pathlib import Path

_SOCKETS = Path("/proc/thread-self/net/netlink")
_NETFILTER = "12"  # NETLINK_NETFILTER


def is_port_open(port_id: int) -> bool:
    """Return whether a netfilter socket of the calling thread's network namespace has this port id.

    Returns False if /proc cannot be read.
    """
    try:
        lines = _SOCKETS.read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return any(line.split()[1:3] == [_NETFILTER, str(port_id)] for line in lines)
