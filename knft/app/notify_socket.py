"""NotifySocket: sends notifications to the service manager, systemd, by the protocol of sd_notify(3)."""

import logging
import os
import socket
from collections.abc import MutableMapping

from msgspec import Struct

log = logging.getLogger("knft")

SEND_SECONDS = 5.0
"""How long a notification may wait while the service manager does not read its socket."""

_SOCKET, _WATCHDOG_PERIOD, _WATCHDOG_PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class NotifySettings(Struct, frozen=True):
    """What the service manager asks for: the address of its socket, and the watchdog's period."""

    address: str
    """A path; the first character of an abstract address is ``@``."""
    watchdog_seconds: float | None
    """The service manager kills this process after so long without a notification of its watchdog; None for never."""


def take_notify_settings(environment: MutableMapping[str, str]) -> NotifySettings | None:
    """Remove the service manager's variables, so that no child process inherits them; None if it wants nothing."""
    address, period, process = (environment.pop(name, "") for name in (_SOCKET, _WATCHDOG_PERIOD, _WATCHDOG_PROCESS))
    if not address.startswith(("/", "@")):
        return None
    is_own = process in ("", str(os.getpid()))
    microseconds = int(period) if period.isascii() and period.isdecimal() and is_own else 0
    return NotifySettings(address, microseconds / 1e6 or None)


class NotifySocket:
    """A socket for notifications. Any thread may use it; child processes do not inherit it."""

    def __init__(self, address: str) -> None:
        """Send to ``address``, see NotifySettings."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SEND_SECONDS)

    def send(self, *assignments: str) -> bool:
        """Send assignments such as ``READY=1`` in one message; return whether that succeeded.

        An error is logged and not raised, because the rules matter more.
        """
        try:
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            reason = error.strerror or "no answer"
            log.warning("cannot notify the service manager at %s: %s", self._address.replace("\0", "@"), reason)
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
