"""Tells that something has changed on this machine, and not what: transactions of nf_tables, and addresses."""

import contextlib
import math
import select
import socket
import time
from typing import Self

from knft.kernel import addresses, netlink_filter
from knft.kernel.features import has_nf_tables
from knft.kernel.notifications import listen


class Changes:
    """Hears of changes in the network namespace of the calling thread, from when it is made."""

    def __init__(self) -> None:
        """Listen; raise KernelError where that is refused. Without nf_tables there is nothing to hear of it."""
        self._sockets = [addresses.listen()]
        if has_nf_tables():
            self._sockets.append(listen(netlink_filter.generations()))
        self._wake, woken = socket.socketpair(type=socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sockets.append(woken)
        self._poll = select.poll()
        for each in self._sockets:
            self._poll.register(each, select.POLLIN)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the sockets."""
        for each in (self._wake, *self._sockets):
            each.close()

    def wake(self) -> None:
        """End a wait of another thread, or the next one, as if something had changed; harmless after the end."""
        with contextlib.suppress(OSError):  # enough others wait to be read, or nobody waits any more
            self._wake.send(b"!")

    def wait(self, seconds: float) -> bool:
        """Wait so long for a change; return whether there was one."""
        if not self._poll.poll(max(0, math.ceil(seconds * 1000))):
            return False
        for each in self._sockets:
            addresses.drain(each)
        return True

    def settle(self, quiet_seconds: float, longest_seconds: float) -> None:
        """Wait until nothing has changed for a while, but not for ever."""
        end = time.monotonic() + longest_seconds
        while self.wait(quiet_seconds) and time.monotonic() < end:
            pass
