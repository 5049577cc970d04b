"""Tells that something has changed on this machine, and not what: transactions of nf_tables, and addresses."""

import contextlib
import errno
import math
import select
import socket
import time
from typing import Self

from knft.errors import KernelError
from knft.kernel import netlink_filter
from knft.kernel.features import has_nf_tables
from knft.kernel.notifications import listen

_ADDRESSES = 0x10 | 0x100  # RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR
_READ_BYTES = 64 * 1024


class Changes:
    """Hears of changes in the network namespace of the calling thread, from when it is made."""

    def __init__(self) -> None:
        """Listen; raise KernelError where that is refused. Without nf_tables there is nothing to hear of it."""
        self._sockets = [_addresses()]
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
            _drain(each)
        return True

    def settle(self, quiet_seconds: float, longest_seconds: float) -> None:
        """Wait until nothing has changed for a while, but not for ever."""
        end = time.monotonic() + longest_seconds
        while self.wait(quiet_seconds) and time.monotonic() < end:
            pass


def _addresses() -> socket.socket:
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        netlink.bind((0, _ADDRESSES))
    except OSError as error:
        msg = f"notifications of changes to addresses are not to be had: {error.strerror}"
        raise KernelError(msg) from error
    return netlink


def _drain(each: socket.socket) -> None:
    """Read all that waits; that there was too much of it is a change as well."""
    while True:
        try:
            each.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                msg = f"notifications of changes are not to be had any more: {error.strerror}"
                raise KernelError(msg) from error
