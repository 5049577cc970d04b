"""Asks the knft process that runs in this network namespace, after it has proved that it holds the instance lock.

Any process may listen at an abstract socket, and a container's root is root of the host for SO_PEERCRED. So neither the
name nor the user of the peer is trusted: it must have the socket of the lock, which needs CAP_NET_ADMIN to take.
"""

import socket
import struct
from contextlib import suppress
from typing import TypeVar

import msgspec

from knft.control.messages import socket_name
from knft.errors import ControlError, NoDaemonError
from knft.kernel.instance_lock import describe_holder, holder_port_id, holds_lock
from knft.kernel.peer import peer_of

TIMEOUT_SECONDS = 10
"""How long each step of a request may take."""
MAX_ANSWER_BYTES = 16 << 20
_Answer = TypeVar("_Answer")
_READ_BYTES = 1 << 16
_TIMEOUT = struct.pack("@ll", TIMEOUT_SECONDS, 0)  # struct timeval


def ask(path: str) -> bytes:
    """Return the answer to a request for ``path``; raise ControlError if no daemon of this namespace answers."""
    port_id = _find_daemon()
    daemon = describe_holder(port_id, "a knft process")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        # Not settimeout(): connect() would then fail at once while other clients wait to be accepted.
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
        try:
            connection.connect(socket_name(port_id))
            _require_lock_holder(connection, port_id)
            return _body(_exchange(connection, path))
        except OSError as error:
            msg = f"{daemon}; {_reason(error)}"
            raise ControlError(msg) from error


def _reason(error: OSError) -> str:
    match error:
        case BlockingIOError():
            return f"it did not answer within {TIMEOUT_SECONDS} s"
        case ConnectionRefusedError():
            return (
                "it refuses connections: retry if it is starting; 'knft run --once', 'knft cleanup' and older versions "
                "do not answer"
            )
        case _:
            return f"it does not answer: {error.strerror or error}"


def decode(answer: bytes, kind: type[_Answer]) -> _Answer:
    """Return an answer as an object; raise ControlError if another version of knft answered in another form."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        msg = f"the running knft is another version, and its answer has another form: {error}; use its own knft command"
        raise ControlError(msg) from error


def _find_daemon() -> int:
    no_lock = ""
    try:
        port_id = holder_port_id()
    except FileNotFoundError:
        # Taking the lock loads the module; on a kernel without it, knft runs without a lock.
        port_id, no_lock = None, ", or the kernel has no nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG)"
    except PermissionError as error:
        msg = "only root may ask the running knft: run this command as root"
        raise ControlError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"cannot find the running knft: the holder of the instance lock cannot be read: {error}"
        raise ControlError(msg) from error
    if port_id is None:
        msg = (
            f"no knft process runs in this network namespace{no_lock}; to look at the kernel's rules instead, use 'nft "
            "list table ip knft' or 'knft explain'"
        )
        raise NoDaemonError(msg)
    return port_id


def _require_lock_holder(connection: socket.socket, port_id: int) -> None:
    """Raise ControlError unless the peer holds the instance lock."""
    pid, uid = peer_of(connection)
    if not pid:
        msg = (
            "cannot check who answers: the process is in another PID namespace; run this command in knft's container, "
            "or in the host's PID namespace"
        )
        raise ControlError(msg)
    try:
        if holds_lock(pid, port_id):
            return
    except OSError as error:
        msg = f"cannot check whether process {pid}, which answers, is knft: {error.strerror}; run this command as root"
        raise ControlError(msg) from error
    msg = f"process {pid} of user {uid} listens at knft's control socket, but does not hold knft's instance lock"
    raise ControlError(msg)


def _exchange(connection: socket.socket, path: str) -> bytes:
    with suppress(BrokenPipeError):  # A refusal may come before the request, and is read below.
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = bytearray()
    while piece := connection.recv(_READ_BYTES):
        answer += piece
        if len(answer) > MAX_ANSWER_BYTES:
            msg = "the answer is too long"
            raise OSError(msg)
    return bytes(answer)


def _body(answer: bytes) -> bytes:
    """Return the body of a response; raise ControlError if its status is not 200."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if not separator or len(words) < 2:  # noqa: PLR2004 - the protocol and the status
        msg = "the running knft closed the connection without an answer"
        raise ControlError(msg)
    if words[1] != b"200":
        text = body.decode(errors="replace").strip()
        msg = f"the running knft refused the request: {text or words[1].decode(errors='replace')}"
        raise ControlError(msg)
    return body
