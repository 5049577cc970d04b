"""Wakes a waiting thread when the host changes: after an nf_tables transaction or a change of interface addresses.

Only ``knft diff --watch`` uses it.
"""

import contextlib
import math
import select
import socket
import time
from typing import Self

from knft.kernel import addresses, netlink_filter
from knft.kernel.features import may_have_nf_tables
from knft.kernel.notifications import open_nftables_notifications


class HostChangeMonitor:
    """Waits for changes in the network namespace in which it was created. It does not say what changed."""

    def __init__(self) -> None:
        """Subscribe; raise KernelError if the kernel refuses. Transactions are ignored if nf_tables is not loaded."""
        self._sockets = [addresses.open_notifications()]
        if may_have_nf_tables():
            self._sockets.append(open_nftables_notifications(netlink_filter.generation_filter()))
        self._wake, woken = socket.socketpair(type=socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sockets.append(woken)
        self._poll = select.poll()
        for each in self._sockets:
            self._poll.register(each, select.POLLIN)

    def __enter__(self) -> Self:
        """Return the monitor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sockets."""
        for each in (self._wake, *self._sockets):
            each.close()

    def wake(self) -> None:
        """Make ``wait`` return as after a change, now or on its next call; any thread may call this at any time."""
        with contextlib.suppress(OSError):  # the queue is full, or the monitor is closed
            self._wake.send(b"!")

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a change; return whether there was one."""
        if not self._poll.poll(max(0, math.ceil(seconds * 1000))):
            return False
        for each in self._sockets:
            addresses.drain(each)
        return True

    def wait_until_quiet(self, quiet_seconds: float, longest_seconds: float) -> None:
        """Return after ``quiet_seconds`` without a change, or after ``longest_seconds`` at most."""
        end = time.monotonic() + longest_seconds
        while self.wait(quiet_seconds) and time.monotonic() < end:
            pass
