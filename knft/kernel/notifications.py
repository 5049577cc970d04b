"""Tells when somebody else changes knft's table, through nf_tables' notifications.

The kernel sends one for each object that a transaction touched, and at the end one that names the process. Packets
that update a dynamic set and elements that expire make none (6.18).
"""

import errno
import math
import select
import socket
import threading
import time
from collections.abc import Iterable
from typing import Self

from msgspec import Struct

from knft.errors import KernelError
from knft.kernel import messages, netlink_filter
from knft.nft.objects import Family

BUFFER_BYTES = 16 * 1024 * 1024
"""How much may wait to be read: notifications of 200 000 elements, say. It is a limit, and costs nothing."""

_NETFILTER = 12  # NETLINK_NETFILTER
_NFTABLES_GROUP = 1 << (7 - 1)  # NFNLGRP_NFTABLES
_SO_RCVBUFFORCE = 33
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 8 KiB


class ForeignChange(Struct, frozen=True):
    """What somebody else did to one family's table in one transaction."""

    family: Family
    chains: frozenset[str] = frozenset()
    """Made, changed or deleted, or their rules were."""
    sets: frozenset[str] = frozenset()
    """Sets and maps that were made, changed or deleted, or whose elements were."""
    table_gone: bool = False
    """The table was deleted, and not made again in the same transaction."""
    process: str = ""
    """Who did it, such as ``nft (pid 4711)``, as the host numbers processes; empty where it is not known."""
    overrun: bool = False
    """The kernel had more to say than could wait: anything may have changed, or nothing."""


class ForeignChanges:
    """Hears what others do to the table ``table``, IPv4 and IPv6, in the network namespace of the calling thread.

    One thread calls ``receive``, ``reopen`` and at the end ``close``; any thread may call ``own_ports`` and ``stop``.
    """

    def __init__(self, table: str, own_ports: frozenset[int] = frozenset()) -> None:
        """Listen from now on, but not to what sockets with ``own_ports`` do; raise KernelError where it is refused."""
        self._table = table
        self._lock = threading.Lock()
        """Held while the socket, or what its filter says, is changed."""
        self._own_ports = own_ports
        self._transaction = _Transaction(table)
        self._socket = listen(netlink_filter.program(table, own_ports))
        # Closing the one end wakes whoever waits at the other.
        self._stop, self._stopped = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._stopped, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def own_ports(self, ports: frozenset[int]) -> None:
        """Ignore what sockets with these port ids do, in place of those before; raise KernelError where it is refused.

        To be called before a new process makes its first change, and with none once the old one is gone: its number
        may be another's then.
        """
        with self._lock:
            self._own_ports = ports
            try:
                netlink_filter.attach(self._socket, netlink_filter.program(self._table, ports))
            except OSError as error:
                raise _refused(error) from error

    def reopen(self) -> None:
        """Listen anew, after ``receive`` has failed; raise KernelError where that is refused.

        Whoever receives calls this, in the network namespace that it is about. What happened meanwhile is not told.
        """
        with self._lock:
            fresh = listen(netlink_filter.program(self._table, self._own_ports))
            self._poll.unregister(self._socket)
            self._poll.register(fresh, select.POLLIN)
            self._socket.close()
            self._socket = fresh
        self._transaction = _Transaction(self._table)

    def receive(self, timeout_seconds: float) -> tuple[ForeignChange, ...]:
        """Return what the next foreign transaction did, one change for each family that it touched.

        Empty where nothing has come in that time, and at once after ``stop``. An overrun is told for both families,
        when all that waited is read: what changes from then on is told again. Raises KernelError where the socket
        fails.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._socket.fileno() in self._ready(deadline - time.monotonic()):
            changes = self._take()
            if changes:
                return changes
        return ()

    def stop(self) -> None:
        """End ``receive``, now and in future; calling it twice is fine."""
        self._stop.close()

    def close(self) -> None:
        """Let go of the sockets; closing twice is fine."""
        for each in (self._stop, self._stopped, self._socket):
            each.close()

    def _ready(self, seconds: float) -> frozenset[int]:
        found = frozenset(fd for fd, _ in self._poll.poll(max(0, math.ceil(seconds * 1000))))
        return frozenset() if self._stopped.fileno() in found else found

    def _take(self) -> tuple[ForeignChange, ...]:
        try:
            return self._transaction.take(self._socket.recv(_READ_BYTES), self._own_ports)
        except BlockingIOError:
            return ()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise _refused(error) from error
        self._discard()
        self._transaction = _Transaction(self._table)
        return tuple(ForeignChange(family, overrun=True) for family in messages.FAMILIES.values())

    def _discard(self) -> None:
        # After an overrun the kernel queues nothing, and says nothing of that either, until all is read.
        while True:
            try:
                self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise _refused(error) from error


class _Touched:
    """What a transaction has touched so far in one family."""

    def __init__(self) -> None:
        self.chains: set[bytes] = set()
        self.sets: set[bytes] = set()
        self.table_gone = False

    def note(self, message: messages.Message) -> None:
        kind = message.kind
        if kind in messages.SET_NAMES:
            self.sets.add(message.attribute(messages.SET_NAMES[kind]))
        elif kind in messages.CHAIN_NAMES:
            self.chains.add(message.attribute(messages.CHAIN_NAMES[kind]))
        elif kind == messages.DELETED_TABLE:
            self.table_gone = True
        elif kind == messages.NEW_TABLE:
            self.table_gone = False

    def change(self, family: Family, process: str) -> ForeignChange:
        return ForeignChange(family, _texts(self.chains), _texts(self.sets), self.table_gone, process)


class _Transaction:
    """Collects the messages of a transaction, which come in several buffers, until the one that ends it."""

    def __init__(self, table: str) -> None:
        self._attribute = messages.table_attribute(table)
        self._touched: dict[Family, _Touched] = {}

    def take(self, buffer: bytes, own_ports: frozenset[int]) -> tuple[ForeignChange, ...]:
        """Return the changes where ``buffer`` ends a transaction that touched the table."""
        # The filter lets others' buffers through where they hold several messages: most are done with here.
        if not self._touched and self._attribute not in buffer:
            return ()
        changes: tuple[ForeignChange, ...] = ()
        for message in messages.split(buffer):
            # Asked again, for what was queued before the filter learned of a port.
            if message.port in own_ports:
                continue
            if message.kind == messages.NEW_GENERATION:
                changes += self._end(_process(message))
            elif message.family in messages.FAMILIES and message.attributes.startswith(self._attribute):
                self._touched.setdefault(messages.FAMILIES[message.family], _Touched()).note(message)
        return changes

    def _end(self, process: str) -> tuple[ForeignChange, ...]:
        touched, self._touched = self._touched, {}
        return tuple(found.change(family, process) for family, found in touched.items())


def _process(generation: messages.Message) -> str:
    name = messages.text(generation.attribute(messages.PROCESS_NAME))
    number = int.from_bytes(generation.attribute(messages.PROCESS_ID), "big")
    return f"{name} (pid {number})" if number else name


def _texts(names: Iterable[bytes]) -> frozenset[str]:
    return frozenset(messages.text(name) for name in names)


def listen(program: Iterable[netlink_filter.Instruction]) -> socket.socket:
    """Return a socket that hears of transactions what a filter lets through; raise KernelError where it is refused."""
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETFILTER)
    except OSError as error:
        raise _refused(error) from error
    try:
        _enlarge_buffer(netlink)
        # Before it joins the group, so that nothing is queued that the filter has not seen.
        netlink_filter.attach(netlink, program)
        netlink.bind((0, _NFTABLES_GROUP))
    except OSError as error:
        netlink.close()
        raise _refused(error) from error
    return netlink


def _enlarge_buffer(netlink: socket.socket) -> None:
    try:
        netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        # Without CAP_NET_ADMIN in the first user namespace, net.core.rmem_max is the limit.
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def _refused(error: OSError) -> KernelError:
    return KernelError(f"notifications of changes to the ruleset are not to be had: {error.strerror}")
