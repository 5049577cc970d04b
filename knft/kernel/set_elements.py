# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Reads the elements of sets and maps through netlink, in the buffers in which the kernel sends them.

libnftables 1.0.6 needs 2 KB of memory and 25 us for each element that it lists. See docs/design/netlink-decoding.md.
"""

import itertools
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence

from knft.errors import KernelError
from knft.kernel import netlink_socket
from knft.kernel import set_element_messages as messages
from knft.kernel.generation import generation
from knft.kernel.worker_messages import SetPart

_NETFILTER = 12  # NETLINK_NETFILTER
_ANSWER_TIMEOUT_SECONDS = 60


def dump_elements(family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
    """Pass each set's or map's declaration to ``receive``, then buffers with its elements, then its last part.

    ``family`` is the number that nf_tables uses. A transaction that changes a set meanwhile can make the kernel omit
    or repeat elements that it does not touch. Raises KernelError if the kernel refuses.
    """
    sequence = itertools.count(1)
    try:
        with netlink_socket.open_netlink(_NETFILTER, _ANSWER_TIMEOUT_SECONDS) as netlink:
            before, may_be_committing = generation(netlink, next(sequence)), False
            for name in names:
                _dump_set(netlink, messages.requests(family, table, name, sequence), name, receive)
                after = generation(netlink, next(sequence))
                # The kernel changes the ID before it removes deleted elements, perhaps during the next dump.
                receive(SetPart(name, is_last=True, has_changed=may_be_committing or after != before))
                before, may_be_committing = after, after != before
    except OSError as error:
        msg = f"cannot read the elements of sets and maps: {error.strerror}"
        raise KernelError(msg) from error


def get_elements(family: int, table: str, name: str, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the buffer with the element of each key that a set has; the kernel finds each without a dump.

    ``keys`` are their parts, each padded to 4 bytes. Raises KernelError if the kernel refuses.
    """
    try:
        with netlink_socket.open_netlink(_NETFILTER, _ANSWER_TIMEOUT_SECONDS) as netlink:
            for sequence, key in enumerate(keys, start=1):
                yield from _get_element(netlink, messages.element_request(family, table, name, key, sequence))
    except OSError as error:
        raise _refused(name, error.errno) from error


def _get_element(netlink: socket.socket, request: bytes) -> list[bytes]:
    found: list[bytes] = []
    try:
        netlink.send(request)
        _receive_answers(netlink, messages.sequence(request), found.append)
    except FileNotFoundError:
        return []
    return found


def _dump_set(netlink: socket.socket, requests: Sequence[bytes], name: str, receive: Callable[[SetPart], None]) -> None:
    try:
        for request in requests:
            netlink.send(request)
            _receive_answers(netlink, messages.sequence(request), lambda buffer: receive(SetPart(name, buffer)))
    except OSError as error:
        raise _refused(name, error.errno) from error


def _receive_answers(netlink: socket.socket, sequence: int, receive: Callable[[bytes], None]) -> None:
    ended = False
    while not ended:
        buffer = netlink_socket.receive(netlink)
        answer = messages.check_answer(buffer, sequence)
        if answer.error:
            raise OSError(answer.error, os.strerror(answer.error))
        ended = answer.ended
        if answer.has_contents:
            receive(buffer)


def _refused(name: str, code: int | None) -> KernelError:
    return KernelError(f"cannot read the elements of {name!r}: {os.strerror(code) if code else 'no reason given'}")
