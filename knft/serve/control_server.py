"""ControlServer: answers commands such as ``knft status`` at an abstract Unix socket.

See docs/design/control-socket.md.
"""

import logging
import os
import socket
from contextlib import suppress

from knft.control.messages import socket_name
from knft.kernel.peer import peer_of
from knft.serve.connection import Handler
from knft.serve.http_thread import HttpThread

log = logging.getLogger("knft")

RETRY_SECONDS = 60.0
"""Time between attempts to get the name of the socket, if another process has it."""
MAX_CONNECTIONS = 4
"""How many clients may be connected; a further one ends the oldest connection."""
_NAME = "control server"
_BACKLOG = 128
_OVERFLOW_UID = 65534
"""SO_PEERCRED reports this user for those that have no number in this user namespace."""
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\nonly root may ask knft\n"


class ControlServer:
    """Listens at a name in the network namespace, which needs no file; only root and knft's own user are answered."""

    def __init__(self, thread: HttpThread, port_id: int, handler: Handler) -> None:
        """Prepare the server of the process whose instance lock has ``port_id``."""
        self._thread = thread
        self._port_id = port_id
        self._handler = handler
        self._users = {0, os.geteuid()} - {_OVERFLOW_UID}
        self._has_warned = False

    def start(self) -> None:
        """Start to listen; call this only in the HTTP thread."""
        listening_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening_socket.bind(socket_name(self._port_id))
            listening_socket.listen(_BACKLOG)
        except OSError as error:
            listening_socket.close()
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "'knft status', 'history' and 'top' get no answer: cannot listen at the control socket: %s; knft "
                    "retries every %d s",
                    error.strerror,
                    RETRY_SECONDS,
                )
            self._thread.call_later(RETRY_SECONDS, self.start)
            return
        self._thread.listen(listening_socket, self._handler, _NAME, admits=self._admits)

    def _admits(self, accepted: socket.socket) -> bool:
        """Return whether a client may ask; the oldest of too many loses its connection."""
        if peer_of(accepted).uid not in self._users:
            with suppress(OSError):
                accepted.send(_REFUSAL)
            return False
        self._thread.connections.limit_client((_NAME, ""), MAX_CONNECTIONS - 1)
        return True
