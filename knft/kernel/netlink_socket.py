# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Opens netlink sockets that do not wait for ever, and reads their messages."""

import errno
import socket
import struct

_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 32 KiB


def open_netlink(protocol: int, timeout_seconds: int) -> socket.socket:
    """Return a socket of the calling thread's network namespace, whose ``recv`` fails after that time; raise OSError.

    ``protocol`` is a number such as NETLINK_ROUTE.
    """
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", timeout_seconds, 0))
    except OSError:
        netlink.close()
        raise
    return netlink


def receive(netlink: socket.socket) -> bytes:
    """Return one buffer of messages; raise OSError, and TimeoutError if the kernel does not answer in time."""
    try:
        return netlink.recv(_READ_BYTES)
    except BlockingIOError as error:  # SO_RCVTIMEO gives EAGAIN.
        raise TimeoutError(errno.ETIMEDOUT, "the kernel does not answer") from error
