"""The kernel's UDP flows, through pyroute2's netlink socket: listed, and forgotten one by one.

A sync beside this waits for some milliseconds at most: the interpreter's lock is given up after every buffer of a
listing, which holds 150 messages, and once for the deletions that are sent together. Beside pyroute2's own way of
listing it has waited for more than 100 ms.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from knft.errors import KernelError
from knft.kernel import flow_messages as messages
from knft.kernel.flow_messages import Flow

ANSWER_SECONDS = 30
"""When the kernel counts as hung; it answers while it is asked."""
ATTEMPTS = 5
"""So often a listing is begun that the kernel interrupts, before what was listed has to do."""
AT_ONCE = 64
"""So many deletions are sent together; their answers fit into any receive buffer."""
YIELD_SECONDS = 0.0003
"""How long nothing is done each time, so that whoever waits for the interpreter's lock gets it."""
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 32 KiB


class Listing(Struct, frozen=True):
    """Flows that were wanted; not ``complete`` where the kernel changed its table in the middle, every time."""

    flows: list[Flow]
    complete: bool


class Forgotten(Struct, frozen=True):
    """How many flows are gone by what was asked, and the first refusal, "" without any."""

    count: int
    refusal: str


class Socket(Protocol):
    """What is needed of pyroute2's socket."""

    def sendto(self, data: bytes, address: tuple[int, int], /) -> int:
        """Send one or several messages."""

    def recv(self, size: int, /) -> bytes:
        """Return one buffer."""


class FlowTable:
    """The UDP flows of one family in zone 0, where knft's rules translate; other zones are those who made them's.

    Listing raises KernelError where nobody answers, or nothing can be listed. ``listings`` and ``deletions`` count
    messages to the kernel.
    """

    def __init__(self, netlink: Socket, family: int) -> None:
        """Speak through a socket of nobody else's; ``family`` is AF_INET or AF_INET6."""
        self._socket = netlink
        self._family = family
        self._layout = messages.layout(family)
        self._sequence = 0
        self.listings = self.deletions = 0

    def find(self, is_wanted: Callable[[bytes, bytes], bool]) -> Listing:
        """Return the flows whose ends (dialled, answering) are wanted."""
        for _ in range(ATTEMPTS):
            flows: list[Flow] = []
            if self._has_listed(is_wanted, flows):
                return Listing(flows, complete=True)
        return Listing(flows, complete=False)

    def _has_listed(self, is_wanted: Callable[[bytes, bytes], bool], flows: list[Flow]) -> bool:
        """Add to ``flows``; return whether these are all."""
        self.listings += 1
        self._sequence += 1
        self._send(messages.listing_request(self._family, self._sequence))
        complete = True
        while True:
            _give_way()
            try:
                buffer = self._receive()
            except InterruptedError:
                complete = False
                continue
            for kind, flags, start in messages.split(buffer, range(self._sequence, self._sequence + 1)):
                complete &= not flags & messages.INTERRUPTED
                if kind == messages.FLOW:
                    found = self._layout.match(buffer, start)
                    if found is not None and is_wanted(found[1] + found[2], found[4] + found[5]):
                        flows += messages.flow_of_zone_0(buffer, start, found)
                elif kind in (messages.ERROR, messages.DONE):
                    code = messages.code(buffer, start)
                    if code not in (0, errno.EINTR):
                        raise _refused(code)
                    return complete and not code

    def forget(self, flows: Sequence[Flow]) -> Forgotten:
        """Delete these very flows.

        One that has ended meanwhile counts as none, and one of the same client that leads elsewhere now is left alone.
        Where answers get lost, what was answered so far counts, and no more is asked for.
        """
        count, refusals = 0, set[int]()
        try:
            for first in range(0, len(flows), AT_ONCE):
                for code in self._delete(flows[first : first + AT_ONCE]):
                    count += code == 0
                    refusals |= {code} - {0, errno.ENOENT}
        except KernelError as error:
            return Forgotten(count, str(error))
        return Forgotten(count, str(_refused(min(refusals))) if refusals else "")

    def _delete(self, flows: Sequence[Flow]) -> Iterator[int]:
        """Delete flows in one go; yield the kernel's answer to each."""
        sequences = range(self._sequence + 1, self._sequence + 1 + len(flows))
        self._sequence += len(flows)
        self.deletions += len(flows)
        requests = zip(sequences, flows, strict=True)
        self._send(b"".join(messages.deletion_request(self._family, *request) for request in requests))
        # Not at each answer: they come one by one, and all of them are there by now.
        _give_way()
        left = len(flows)
        while left:
            try:
                buffer = self._receive()
            except InterruptedError as error:
                raise _refused(errno.ENOBUFS) from error
            for kind, _, start in messages.split(buffer, sequences):
                if kind == messages.ERROR:
                    left -= 1
                    yield messages.code(buffer, start)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, (0, 0))
        except OSError as error:
            raise _refused(error.errno) from error

    def _receive(self) -> bytes:
        """Return a buffer; raise InterruptedError where the kernel had no room for one."""
        try:
            return self._socket.recv(_READ_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.EINTR):
                raise InterruptedError from error
            raise _refused(errno.ETIMEDOUT if error.errno == errno.EAGAIN else error.errno) from error


def _give_way() -> None:
    time.sleep(YIELD_SECONDS)


@contextmanager
def flow_table(family: int) -> Iterator[FlowTable]:
    """Open the flows of the calling thread's network namespace; raise KernelError where that is refused."""
    from pyroute2.netlink.nfnetlink.nfctsocket import (  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy
        NFCTSocket,
    )

    netlink = NFCTSocket(nfgen_family=family)
    try:
        # Its own way to listen, with an event loop, is not used: the socket is enough.
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", ANSWER_SECONDS, 0))
        yield FlowTable(netlink, family)
    except OSError as error:
        raise _refused(error.errno) from error
    finally:
        netlink.close()


def _refused(code: int | None) -> KernelError:
    reason = os.strerror(code) if code else "no reason given"
    return KernelError(f"conntrack cannot be asked about UDP flows: {reason}; it takes the module nf_conntrack_netlink")
