# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Reads the elements of one set or map through netlink, in the buffers in which the kernel sends them.

libnftables 1.0.6 needs 2 KB of memory and 25 us for each element that it lists. See docs/design/netlink-decoding.md.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable

from knft.errors import KernelError
from knft.kernel import set_element_messages as messages

_NETFILTER = 12  # NETLINK_NETFILTER
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 32 KiB
_ANSWER_TIMEOUT_SECONDS = 60
DUMP_ATTEMPTS = 20
"""How often a dump is started in all if other changes of nftables interrupt it."""


def dump_elements(family: int, table: str, name: str, receive: Callable[[bytes], None]) -> None:
    """Pass the declaration of a set or map to ``receive``, then buffers with its elements.

    If ``name`` is "", pass the declarations of all sets and maps of the table, none if there is no table. ``family`` is
    the number that nf_tables uses. An empty buffer means that the previous ones are void, because another transaction
    interrupted the dump. Raises KernelError if the kernel refuses.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER) as netlink:
        try:
            netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_TIMEOUT_SECONDS, 0))
            for attempt in range(DUMP_ATTEMPTS):
                if attempt:
                    receive(b"")
                if _dump_once(netlink, messages.requests(family, table, name, 2 * attempt + 1), receive):
                    return
        except OSError as error:
            if not name and error.errno == errno.ENOENT:  # There is no such table.
                return
            raise _refused(name, error.errno) from error
    raise _refused(name, errno.EINTR)


def _dump_once(netlink: socket.socket, requests: tuple[bytes, ...], receive: Callable[[bytes], None]) -> bool:
    """Send both requests one after the other; return whether the dump was complete."""
    complete = True
    for request in requests:
        netlink.send(request)
        ended = False
        while not ended:
            buffer = netlink.recv(_READ_BYTES)
            answer = messages.check_answer(buffer, messages.sequence(request))
            if answer.error not in (0, errno.EINTR):
                raise OSError(answer.error, os.strerror(answer.error))
            complete &= not answer.interrupted and not answer.error
            ended = answer.ended
            if answer.has_contents and complete:
                receive(buffer)
    return complete


def _refused(name: str, code: int | None) -> KernelError:
    return KernelError(f"cannot read the elements of {name!r}: {os.strerror(code) if code else 'no reason given'}")
