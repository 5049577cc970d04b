"""A service manager's socket for notifications, at a path or at an abstract address."""

import select
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT = 120.0
"""Seconds after which a test gives up."""


class NotifyReceiver:
    """Receives messages; ``address`` is the value of NOTIFY_SOCKET."""

    def __init__(self, path: Path | None = None) -> None:
        """Listen at ``path``, or at an abstract address that the kernel chooses."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(TIMEOUT)
        self._socket.bind("" if path is None else str(path))
        name = self._socket.getsockname()
        self.address = name if isinstance(name, str) else f"@{name[1:].decode()}"

    def receive(self) -> list[str]:
        """Return the assignments of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def receive_until(self, assignment: str) -> list[list[str]]:
        """Return all messages up to the one with an assignment."""
        messages = [self.receive()]
        while assignment not in messages[-1]:
            messages.append(self.receive())
        return messages

    def is_empty(self) -> bool:
        """Return whether no message waits."""
        return not select.select([self._socket], [], [], 0)[0]

    def __enter__(self) -> Self:
        """Return the receiver."""
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        """Close the socket."""
        self._socket.close()
