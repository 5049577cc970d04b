"""The addresses of this machine's interfaces, through netlink: read, and followed."""

import errno
import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from knft.errors import KernelError

log = logging.getLogger("knft")

POLL_SECONDS = 5.0
"""How often they are read where the kernel tells of no changes, and how long until it is asked to again."""
GATHER_SECONDS = 0.1
"""How long changes are gathered after one was told, as interfaces come with several addresses."""
LOOK_SECONDS = 0.5
"""How long it takes to notice that one has to stop."""
BUFFER_BYTES = 1024 * 1024

_ROUTE = 0  # NETLINK_ROUTE
_GROUPS = 1 << (5 - 1) | 1 << (9 - 1)  # RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR
_READ_BYTES = 64 * 1024

Addresses = frozenset[str]


def local_addresses() -> Addresses:
    """Return every address of every interface, as canonical text, loopback and link-local ones included."""
    from pyroute2 import (  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy, only `run` needs it
        IPRoute,
        NetlinkError,
    )

    try:
        with IPRoute() as netlink:
            messages = [
                message for family in (socket.AF_INET, socket.AF_INET6) for message in netlink.get_addr(family=family)
            ]
    except (NetlinkError, OSError) as error:
        msg = f"the machine's addresses cannot be read: {error}"
        raise KernelError(msg) from error
    # IFA_LOCAL is this end's address on a point-to-point link, where IFA_ADDRESS is the other's.
    found = (message.get("IFA_LOCAL") or message.get("IFA_ADDRESS") for message in messages)
    return frozenset(address for address in found if address)


class AddressFollower:
    """Tells what the machine's addresses are, whenever that changes.

    The kernel says when to look, and nothing of what it says is believed: all are read again, so that an overrun is
    a reason to look like any other.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._told: Addresses | None = None
        self._complaint = ""

    def follow(self, stop: threading.Event, told: Callable[[Addresses], None]) -> None:
        """Tell the addresses now and after every change until ``stop`` is set; a thread of its own calls this.

        They are those of the network namespace of that thread. Where the kernel's notifications fail, they are read
        now and then instead, with a warning, until there are notifications again.
        """
        while not stop.is_set():
            try:
                with listen() as notifications:
                    self._look(told)
                    self._settle("")
                    self._follow(notifications, stop, told)
            except KernelError as error:
                self._settle(f"{error}; the machine's addresses are read every {POLL_SECONDS:g} s")
                # Not to be heard of any change is no reason not to see one.
                with suppress(KernelError):
                    self._look(told)
                stop.wait(POLL_SECONDS)

    def _follow(self, notifications: socket.socket, stop: threading.Event, told: Callable[[Addresses], None]) -> None:
        poll = select.poll()
        poll.register(notifications, select.POLLIN)
        while not stop.is_set():
            if poll.poll(LOOK_SECONDS * 1000):
                drain(notifications)
                self._look(told)
                # A flood of changes is looked at now and then, and the last one always.
                stop.wait(GATHER_SECONDS)

    def _look(self, told: Callable[[Addresses], None]) -> None:
        found = local_addresses()
        if found != self._told:
            told(found)
            self._told = found

    def _settle(self, complaint: str) -> None:
        if complaint and complaint != self._complaint:
            log.warning("%s", complaint)
        if self._complaint and not complaint:
            log.info("changes of the machine's addresses are told by the kernel again")
        self._complaint = complaint


def listen() -> socket.socket:
    """Return a socket that hears of addresses that come and go, in both families; raise KernelError if refused."""
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _ROUTE)
    except OSError as error:
        raise _refused(error) from error
    try:
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        netlink.bind((0, _GROUPS))
    except OSError as error:
        netlink.close()
        raise _refused(error) from error
    return netlink


def drain(notifications: socket.socket) -> None:
    """Read all that waits, an overrun too: the kernel says nothing more until that is read. May raise KernelError."""
    while True:
        try:
            notifications.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                msg = f"notifications of changes are not to be had any more: {error.strerror}"
                raise KernelError(msg) from error


def _refused(error: OSError) -> KernelError:
    return KernelError(f"notifications of changed addresses are not to be had: {error.strerror}")
