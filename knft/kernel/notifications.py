"""Reports changes that other programs make to knft's table, from nf_tables notifications.

The kernel sends one notification for each object that a transaction changes, and a last one that names the process.
Elements of dynamic sets that packets add and timeouts remove cause none (seen with 6.18).
"""

import errno
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from msgspec import Struct

from knft.errors import KernelError
from knft.families import FAMILY_OF_NUMBER, Family
from knft.kernel import netlink_filter, nftables_messages
from knft.kernel.printable_names import printable_name
from knft.kernel.process_names import describe_process

BUFFER_BYTES = 16 * 1024 * 1024
"""The receive buffer's limit, enough for notifications of about 200 000 elements. Unused space costs no memory."""

_NETFILTER = 12  # NETLINK_NETFILTER
_NFTABLES_GROUP = 1 << (7 - 1)  # NFNLGRP_NFTABLES
_SO_RCVBUFFORCE = 33
_NETLINK_SOCKETS = Path("/proc/thread-self/net/netlink")
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 8 KiB


class ForeignChange(Struct, frozen=True):
    """What another program changed in one family's table in one transaction."""

    family: Family
    chains: frozenset[str] = frozenset()
    """Chains that were created, changed or deleted, or whose rules were."""
    sets: frozenset[str] = frozenset()
    """Sets and maps that were created, changed or deleted, or whose elements were."""
    table_gone: bool = False
    """Whether the table was deleted and not created again in the same transaction."""
    process: str = ""
    """The process that made the change, such as ``nft (pid 4711)`` with the host's process id; empty if unknown."""
    overrun: bool = False
    """Whether the kernel dropped notifications because the buffer was full: anything may have changed."""


class ForeignChangeMonitor:
    """Receives other programs' changes to ``table``, IPv4 and IPv6, in the network namespace of the creating thread.

    One thread calls ``receive``, ``reopen`` and at the end ``close``. Any thread may call ``set_own_port_ids`` and
    ``stop``.
    """

    def __init__(self, table: str, own_port_ids: frozenset[int] = frozenset()) -> None:
        """Subscribe, but ignore changes of sockets with ``own_port_ids``; raise KernelError if the kernel refuses."""
        self._table = table
        self._lock = threading.Lock()
        """Held while the socket or its filter is replaced."""
        self._own_port_ids = own_port_ids
        self._transaction = _Transaction(table)
        self._socket = open_nftables_notifications(netlink_filter.table_filter(table, own_port_ids))
        # Closing one end wakes the thread that polls the other.
        self._stop, self._stopped = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._stopped, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_own_port_ids(self, port_ids: frozenset[int]) -> None:
        """Replace the port ids of the sockets whose changes are ignored; raise KernelError if the kernel refuses.

        Call this before a new worker process makes its first change, and with an empty set when the old one is gone:
        another program may get its port id.
        """
        with self._lock:
            self._own_port_ids = port_ids
            try:
                netlink_filter.attach(self._socket, netlink_filter.table_filter(self._table, port_ids))
            except OSError as error:
                raise _refused(error) from error

    def reopen(self) -> None:
        """Subscribe again after ``receive`` has failed; raise KernelError if the kernel refuses.

        The receiving thread calls this, in the network namespace that it monitors. Changes made in the meantime are
        lost.
        """
        with self._lock:
            fresh = open_nftables_notifications(netlink_filter.table_filter(self._table, self._own_port_ids))
            self._poll.unregister(self._socket)
            self._poll.register(fresh, select.POLLIN)
            self._socket.close()
            self._socket = fresh
        self._transaction = _Transaction(self._table)

    def other_subscribers(self) -> frozenset[int]:
        """Return the inode numbers of other sockets that receive nf_tables notifications in this network namespace.

        They belong to any processes, also to those of other containers. Raises KernelError if /proc cannot be read.
        """
        with self._lock:
            own = os.fstat(self._socket.fileno()).st_ino
        return nftables_subscribers() - {own}

    def receive(self, timeout_seconds: float) -> tuple[ForeignChange, ...]:
        """Return the changes of the next foreign transaction, one for each family that it touched.

        Returns an empty tuple after ``timeout_seconds``, and at once after ``stop``. After an overrun this discards all
        queued notifications and returns a change with ``overrun`` for each family. Raises KernelError if the socket
        fails.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._socket.fileno() in self._ready(deadline - time.monotonic()):
            changes = self._read_transaction()
            if changes:
                return changes
        return ()

    def stop(self) -> None:
        """Make ``receive`` return at once, now and in future; may be called twice."""
        self._stop.close()

    def close(self) -> None:
        """Close the sockets; may be called twice."""
        for each in (self._stop, self._stopped, self._socket):
            each.close()

    def _ready(self, seconds: float) -> frozenset[int]:
        found = frozenset(fd for fd, _ in self._poll.poll(max(0, math.ceil(seconds * 1000))))
        return frozenset() if self._stopped.fileno() in found else found

    def _read_transaction(self) -> tuple[ForeignChange, ...]:
        try:
            return self._transaction.add_buffer(self._socket.recv(_READ_BYTES), self._own_port_ids)
        except BlockingIOError:
            return ()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise _refused(error) from error
        self._drain()
        self._transaction = _Transaction(self._table)
        return tuple(ForeignChange(family, overrun=True) for family in FAMILY_OF_NUMBER.values())

    def _drain(self) -> None:
        # After an overrun the kernel queues nothing, without a further error, until the queue is empty.
        while True:
            try:
                self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise _refused(error) from error


class _TouchedObjects:
    """The objects of one family that a transaction has touched so far."""

    def __init__(self) -> None:
        self.chains: set[bytes] = set()
        self.sets: set[bytes] = set()
        self.table_gone = False

    def record(self, message: nftables_messages.Message) -> None:
        kind = message.kind
        if kind in nftables_messages.SET_NAMES:
            self.sets.add(message.attribute(nftables_messages.SET_NAMES[kind]))
        elif kind in nftables_messages.CHAIN_NAMES:
            self.chains.add(message.attribute(nftables_messages.CHAIN_NAMES[kind]))
        elif kind == nftables_messages.DELETED_TABLE:
            self.table_gone = True
        elif kind == nftables_messages.NEW_TABLE:
            self.table_gone = False

    def change(self, family: Family, process: str) -> ForeignChange:
        return ForeignChange(
            family, _printable_names(self.chains), _printable_names(self.sets), self.table_gone, process
        )


class _Transaction:
    """Collects the messages of a transaction, which may span several buffers, until NEW_GENERATION ends it."""

    def __init__(self, table: str) -> None:
        self._attribute = nftables_messages.table_attribute(table)
        self._touched: dict[Family, _TouchedObjects] = {}

    def add_buffer(self, buffer: bytes, own_port_ids: frozenset[int]) -> tuple[ForeignChange, ...]:
        """Return the changes if ``buffer`` ends a transaction that touched the table."""
        # The filter passes all buffers with several messages; most of them are about other tables.
        if not self._touched and self._attribute not in buffer:
            return ()
        changes: tuple[ForeignChange, ...] = ()
        for message in nftables_messages.split(buffer):
            # Checked again for messages that were queued before the filter was replaced.
            if message.port in own_port_ids:
                continue
            if message.kind == nftables_messages.NEW_GENERATION:
                changes += self._finish(_process_text(message))
            elif message.family in FAMILY_OF_NUMBER and message.attributes.startswith(self._attribute):
                self._touched.setdefault(FAMILY_OF_NUMBER[message.family], _TouchedObjects()).record(message)
        return changes

    def _finish(self, process: str) -> tuple[ForeignChange, ...]:
        touched, self._touched = self._touched, {}
        return tuple(found.change(family, process) for family, found in touched.items())


def _process_text(generation: nftables_messages.Message) -> str:
    name = printable_name(generation.attribute(nftables_messages.PROCESS_NAME))
    return describe_process(int.from_bytes(generation.attribute(nftables_messages.PROCESS_ID), "big"), name)


def _printable_names(names: Iterable[bytes]) -> frozenset[str]:
    return frozenset(printable_name(name) for name in names)


def open_nftables_notifications(program: Iterable[netlink_filter.Instruction]) -> socket.socket:
    """Return a socket that receives nf_tables notifications that pass ``program``; raise KernelError if that fails."""
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETFILTER)
    except OSError as error:
        raise _refused(error) from error
    try:
        _enlarge_buffer(netlink)
        # Before joining the group, so that no unfiltered message is queued.
        netlink_filter.attach(netlink, program)
        netlink.bind((0, _NFTABLES_GROUP))
    except OSError as error:
        netlink.close()
        raise _refused(error) from error
    return netlink


def nftables_subscribers() -> frozenset[int]:
    """Return the inode numbers of all sockets that receive nf_tables notifications in the calling thread's namespace.

    Raises KernelError if /proc cannot be read.
    """
    try:
        _, *lines = _NETLINK_SOCKETS.read_text(encoding="ascii").splitlines()
        # Address, protocol, port id, groups, three sizes, dump, references, drops, inode.
        sockets = [line.split() for line in lines]
        return frozenset(
            int(fields[-1])
            for fields in sockets
            if int(fields[1]) == _NETFILTER and int(fields[3], 16) & _NFTABLES_GROUP
        )
    except (OSError, ValueError, IndexError) as error:
        msg = f"cannot read {_NETLINK_SOCKETS}: {error}"
        raise KernelError(msg) from error


def _enlarge_buffer(netlink: socket.socket) -> None:
    try:
        netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        # Without CAP_NET_ADMIN in the initial user namespace, net.core.rmem_max is the limit.
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def _refused(error: OSError) -> KernelError:
    return KernelError(f"cannot receive nf_tables notifications: {error.strerror}")
