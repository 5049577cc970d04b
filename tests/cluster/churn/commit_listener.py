"""CommitListener: a process that records the kernel's notifications of commits, with the time of each.

``python -m tests.cluster.churn.commit_listener FILE`` listens in its network namespace until SIGTERM.
"""

import math
import signal
import socket
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.cluster.churn.numbered_endpoints import FIRST
from tests.support.lab.namespace import Namespace
from tests.support.processes import die_with_parent

_NETLINK_NETFILTER = 12
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_NFNLGRP_NFTABLES = 7
_SO_RCVBUFFORCE = 33
_BUFFER = 256 << 20
_RECORD = struct.Struct("=dI")
_LIMIT = FIRST + (1 << 23)


class CommitListener:
    """A context manager that records notifications; call ``first_seen`` afterwards."""

    def __init__(self, namespace: Namespace, file: Path) -> None:
        """Start nothing yet."""
        self._namespace, self._file = namespace, file

    def __enter__(self) -> Self:
        """Wait until the process listens."""
        command = [sys.executable, "-m", "tests.cluster.churn.commit_listener", str(self._file)]
        self._process = self._namespace.popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until all notifications are written."""
        self._process.terminate()
        self._process.communicate()
        assert self._process.returncode == 0, "the notifications overflowed the socket buffer"

    def first_seen(self, sent: Mapping[int, float]) -> dict[int, float]:
        """Return the time of the first notification with each number's address after it was sent."""
        first: dict[int, float] = {}
        for seconds, message in _records(self._file):
            for number in (word - FIRST for word in _words(message) if FIRST <= word < _LIMIT):
                if number not in first and sent.get(number, math.inf) <= seconds:
                    first[number] = seconds
        return first


def open_notifications() -> socket.socket:
    """Return a socket of the caller's network namespace that receives the kernel's notifications of commits.

    It has room for those of a large commit if root opens it, and a timeout of 0.2 s.
    """
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    with suppress(PermissionError):  # In a user namespace; then a large commit overflows the buffer.
        kernel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    kernel.bind((0, 0))
    kernel.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES)
    kernel.settimeout(0.2)
    return kernel


def _words(message: bytes) -> Sequence[int]:
    # Netlink attributes are aligned to four bytes, and so are addresses, in network byte order.
    words = array("I", message[: len(message) & ~3])
    words.byteswap()
    return words


def _records(file: Path) -> Iterator[tuple[float, bytes]]:
    with file.open("rb") as records:
        while head := records.read(_RECORD.size):
            seconds, length = _RECORD.unpack(head)
            yield seconds, records.read(length)


def main() -> None:
    """Record notifications; an overflow of the socket's buffer is an error."""
    die_with_parent()
    with open_notifications() as kernel:
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
        print("listening", flush=True)
        with Path(sys.argv[1]).open("wb") as records:
            while not ended:
                try:
                    message = kernel.recv(1 << 20)
                except TimeoutError:
                    continue
                records.write(_RECORD.pack(time.time(), len(message)) + message)


if __name__ == "__main__":
    main()
