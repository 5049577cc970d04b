"""Lists and deletes the kernel's conntrack entries of UDP and TCP, through netlink.

The sync thread waits a few milliseconds at most: this module releases the GIL after each dump buffer (150
messages) and once for each batch of deletions. With pyroute2's own dump a sync waited for more than 100 ms.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from msgspec import Struct

from knft.errors import KernelError
from knft.kernel import conntrack_messages as messages
from knft.kernel.conntrack_messages import Flow
from knft.protocols import TCP, UDP

FlowProtocol = Literal["UDP", "TCP"]

ANSWER_TIMEOUT_SECONDS = 30
"""After this time without an answer the kernel is considered hung. It answers a request synchronously."""
DUMP_ATTEMPTS = 5
"""How often a dump that the kernel interrupts is started in all; the last one is used although it is incomplete."""
DELETE_BATCH = 64
"""How many deletions are sent together. Their acknowledgements fit into any receive buffer."""
YIELD_SECONDS = 0.0003
"""How long to sleep to release the GIL, so that a waiting thread gets it."""
_PROTOCOLS: dict[FlowProtocol, int] = {"UDP": UDP, "TCP": TCP}
_NETFILTER = 12  # NETLINK_NETFILTER
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 32 KiB


class FlowDump(Struct, frozen=True):
    """The flows that matched; not ``complete`` if the kernel interrupted all attempts because its table changed."""

    flows: list[Flow]
    complete: bool


class DeletedFlows(Struct, frozen=True):
    """How many flows were deleted, and the first error, "" if there was none."""

    count: int
    error: str


class NetlinkSocket(Protocol):
    """The methods of a socket that are used."""

    def sendto(self, data: bytes, address: tuple[int, int], /) -> int:
        """Send one or more messages."""

    def recv(self, size: int, /) -> bytes:
        """Return one buffer of messages."""


class FlowTable:
    """The flows (conntrack entries) of one family and protocol in zone 0, the only one in which knft's rules translate.

    ``dumps`` and ``deletions`` count the requests sent to the kernel.
    """

    def __init__(self, netlink: NetlinkSocket, family: int, protocol: FlowProtocol = "UDP") -> None:
        """Use a socket that nothing else uses; ``family`` is AF_INET or AF_INET6."""
        self._socket = netlink
        self._family = family
        self._protocol: FlowProtocol = protocol
        self._pattern = messages.flow_pattern(family, _PROTOCOLS[protocol])
        self._sequence = 0
        self.dumps = self.deletions = 0

    def dump(self, is_match: Callable[[bytes, bytes], bool], reply_source: bytes | None = None) -> FlowDump:
        """Return the flows for which ``is_match(original_destination, reply_source)`` is true.

        With ``reply_source``, an address and a port, the kernel passes only the flows to this endpoint: Python then
        need not look at the others. Raises KernelError if the kernel refuses the dump or does not answer.
        """
        for _ in range(DUMP_ATTEMPTS):
            flows: list[Flow] = []
            if self._dump_once(is_match, reply_source, flows):
                return FlowDump(flows, complete=True)
        return FlowDump(flows, complete=False)

    def _dump_once(
        self, is_match: Callable[[bytes, bytes], bool], reply_source: bytes | None, flows: list[Flow]
    ) -> bool:
        """Add the matching flows to ``flows``; return whether the dump was complete."""
        self.dumps += 1
        self._sequence += 1
        self._send(messages.dump_request(self._family, self._sequence, _PROTOCOLS[self._protocol], reply_source))
        complete = True
        while True:
            _yield_gil()
            try:
                buffer = self._receive()
            except InterruptedError:
                complete = False
                continue
            for kind, flags, start in messages.split(buffer, range(self._sequence, self._sequence + 1)):
                complete &= not flags & messages.INTERRUPTED
                if kind == messages.FLOW:
                    found = self._pattern.match(buffer, start)
                    if found is not None and is_match(found[1] + found[2], found[4] + found[5]):
                        flows += messages.parse_flow(buffer, start, found)
                elif kind in (messages.ERROR, messages.DONE):
                    code = messages.error_code(buffer, start)
                    if code not in (0, errno.EINTR):
                        raise self._refused(code)
                    return complete and not code

    def delete(self, flows: Sequence[Flow]) -> DeletedFlows:
        """Delete exactly these flows.

        A flow that has ended is not counted, and a new flow of the same client with another endpoint is not deleted. If
        acknowledgements are lost, this returns the number so far and sends no further deletions.
        """
        count, refusals = 0, set[int]()
        try:
            for first in range(0, len(flows), DELETE_BATCH):
                for code in self._delete_batch(flows[first : first + DELETE_BATCH]):
                    count += code == 0
                    refusals |= {code} - {0, errno.ENOENT}
        except KernelError as error:
            return DeletedFlows(count, str(error))
        return DeletedFlows(count, str(self._refused(min(refusals))) if refusals else "")

    def _delete_batch(self, flows: Sequence[Flow]) -> Iterator[int]:
        """Send deletions together; yield the errno of each."""
        sequences = range(self._sequence + 1, self._sequence + 1 + len(flows))
        self._sequence += len(flows)
        self.deletions += len(flows)
        requests = zip(sequences, flows, strict=True)
        self._send(b"".join(messages.deletion_request(self._family, *request) for request in requests))
        # Once for each batch: the acknowledgements are queued by now, one buffer each.
        _yield_gil()
        left = len(flows)
        while left:
            try:
                buffer = self._receive()
            except InterruptedError as error:
                raise self._refused(errno.ENOBUFS) from error
            for kind, _, start in messages.split(buffer, sequences):
                if kind == messages.ERROR:
                    left -= 1
                    yield messages.error_code(buffer, start)

    def _refused(self, code: int | None) -> KernelError:
        return _refused(self._protocol, code)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, (0, 0))
        except OSError as error:
            raise self._refused(error.errno) from error

    def _receive(self) -> bytes:
        """Return a buffer; raise InterruptedError if the kernel lost messages (ENOBUFS)."""
        try:
            return self._socket.recv(_READ_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.EINTR):
                raise InterruptedError from error
            raise self._refused(errno.ETIMEDOUT if error.errno == errno.EAGAIN else error.errno) from error


def _yield_gil() -> None:
    time.sleep(YIELD_SECONDS)


@contextmanager
def open_flow_table(family: int, protocol: FlowProtocol = "UDP") -> Iterator[FlowTable]:
    """Open the flows of the calling thread's network namespace; raise KernelError if the kernel refuses."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER) as netlink:
            netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", ANSWER_TIMEOUT_SECONDS, 0))
            yield FlowTable(netlink, family, protocol)
    except OSError as error:
        raise _refused(protocol, error.errno) from error


def _refused(protocol: FlowProtocol, code: int | None) -> KernelError:
    reason = os.strerror(code) if code else "no reason given"
    return KernelError(
        f"cannot access {protocol} conntrack entries: {reason}; the kernel module nf_conntrack_netlink is required"
    )
