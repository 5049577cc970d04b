"""Which process is at the other end of a Unix socket."""

import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")  # struct ucred


class Peer(NamedTuple):
    """The ids of a process and its user, as this process's namespaces number them; ``pid`` is 0 outside of them."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that connected, or that listened when this one connected."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)
