"""The IP addresses of this host's interfaces: reads them through netlink, and reports each change."""

import errno
import logging
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from knft.errors import KernelError
from knft.kernel import netlink_dump, netlink_messages

log = logging.getLogger("knft")

POLL_SECONDS = 5.0
"""While notifications are unavailable: seconds between two reads of the addresses and two attempts to subscribe."""
DEBOUNCE_SECONDS = 0.1
"""Seconds to collect further notifications after a read, since an interface often gets several addresses at once."""
STOP_CHECK_SECONDS = 0.5
"""The longest time until AddressMonitor notices that it has to stop."""
BUFFER_BYTES = 1024 * 1024

_NETLINK_ROUTE = 0
_NEW_ADDRESS, _GET_ADDRESS = 20, 22  # RTM_NEWADDR, RTM_GETADDR
_IFADDRMSG = struct.Struct("=BBBBI")
_ADDRESS, _LOCAL = 1, 2  # IFA_...
_ADDRESS_GROUPS = 1 << (5 - 1) | 1 << (9 - 1)  # RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR
_READ_BYTES = 64 * 1024

Addresses = frozenset[str]


def local_addresses() -> Addresses:
    """Return all addresses of all interfaces as canonical text, including loopback and link-local ones."""
    try:
        return frozenset(
            text
            for family in (socket.AF_INET, socket.AF_INET6)
            for item in netlink_dump.dump(
                _NETLINK_ROUTE, _GET_ADDRESS, _IFADDRMSG.pack(family, 0, 0, 0, 0), _NEW_ADDRESS
            )
            if (text := _address(family, item))
        )
    except OSError as error:
        msg = f"cannot read the addresses of the network interfaces: {error.strerror}"
        raise KernelError(msg) from error


def _address(family: int, item: bytes) -> str:
    """Return this host's address in an item of the list; "" if it has none.

    A kernel without a family answers with the addresses of all others.
    """
    if item[0] != family:
        return ""
    fields = netlink_messages.payloads(item, _IFADDRMSG.size, len(item))
    # On a point-to-point link IFA_LOCAL is this host's address and IFA_ADDRESS is the peer's.
    raw = fields.get(_LOCAL) or fields.get(_ADDRESS)
    return socket.inet_ntop(family, raw) if raw else ""


class AddressMonitor:
    """Reports the host's addresses at the start and after each change.

    A notification only triggers a new read of all addresses; its content is not used. So a lost notification (ENOBUFS)
    is handled like any other.
    """

    def __init__(self) -> None:
        """Create a monitor that has not reported any addresses yet."""
        self._reported: Addresses | None = None
        self._warning = ""

    def run(self, stop: threading.Event, on_change: Callable[[Addresses], None]) -> None:
        """Call ``on_change`` with the addresses now and after each change, until ``stop`` is set.

        Run this in a thread of its own: the addresses are those of its network namespace. While netlink notifications
        fail, the monitor logs a warning, reads the addresses every POLL_SECONDS and tries to subscribe again.
        """
        while not stop.is_set():
            try:
                with open_notifications() as notifications:
                    self._report_if_changed(on_change)
                    self._log_recovery()
                    self._watch(notifications, stop, on_change)
            except KernelError as error:
                self._log_problem(f"{error}; reading the interface addresses every {POLL_SECONDS:g} s instead")
                # Without notifications a change is still found by reading.
                with suppress(KernelError):
                    self._report_if_changed(on_change)
                stop.wait(POLL_SECONDS)

    def _watch(
        self, notifications: socket.socket, stop: threading.Event, on_change: Callable[[Addresses], None]
    ) -> None:
        poll = select.poll()
        poll.register(notifications, select.POLLIN)
        while not stop.is_set():
            if poll.poll(STOP_CHECK_SECONDS * 1000):
                drain(notifications)
                self._report_if_changed(on_change)
                # Limits how often the addresses are read; the last change is always seen.
                stop.wait(DEBOUNCE_SECONDS)

    def _report_if_changed(self, on_change: Callable[[Addresses], None]) -> None:
        found = local_addresses()
        if found != self._reported:
            on_change(found)
            self._reported = found

    def _log_problem(self, warning: str) -> None:
        if warning != self._warning:
            log.warning("%s", warning)
        self._warning = warning

    def _log_recovery(self) -> None:
        if self._warning:
            log.info("netlink notifications of address changes work again")
        self._warning = ""


def open_notifications() -> socket.socket:
    """Return a socket that receives notifications of IPv4 and IPv6 address changes; raise KernelError if that fails."""
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_ROUTE)
    except OSError as error:
        raise _unavailable(error) from error
    try:
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        netlink.bind((0, _ADDRESS_GROUPS))
    except OSError as error:
        netlink.close()
        raise _unavailable(error) from error
    return netlink


def drain(notifications: socket.socket) -> None:
    """Discard all queued notifications, also after an overrun (ENOBUFS); raise KernelError if the socket fails.

    After an overrun the kernel queues no notification until the queue has been read to its end.
    """
    while True:
        try:
            notifications.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                msg = f"cannot receive netlink notifications: {error.strerror}"
                raise KernelError(msg) from error


def _unavailable(error: OSError) -> KernelError:
    return KernelError(f"cannot subscribe to address changes: {error.strerror}")
