"""InstanceLock: only one knft process at a time changes the tables of a network namespace.

The lock is a group of nfnetlink_log, bound by a netlink socket that the process keeps open. The kernel lets one socket
of each network namespace bind a group, requires CAP_NET_ADMIN in the user namespace that owns the network namespace,
and releases the group when the socket is closed, also if the process is killed. No packets are sent to the group.

The port id of the socket contains the process id, for the message of a second process. See
docs/design/instance-lock.md.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from knft.errors import InstanceLockedError, KernelError, UnsupportedError
from knft.kernel import nftables_messages
from knft.kernel.process_names import command_of, sees_host_processes

GROUP = 0x6B6E
"""The group of nfnetlink_log that knft binds: "kn". Groups of packet loggers are usually small numbers."""

_NETFILTER = 12  # NETLINK_NETFILTER
_GET_GENERATION = 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_LOG_CONFIG = 4 << 8 | 1  # NFNL_SUBSYS_ULOG, NFULNL_MSG_CONFIG
_BIND = struct.pack("=HHB3x", 5, 1, 1)  # NFULA_CFG_CMD, NFULNL_CFG_CMD_BIND
_REQUEST, _ACK = 1, 4  # NLM_F_...
_ERROR = 2  # NLMSG_ERROR
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_CODE = struct.Struct("=i")
_READ_BYTES = 8192
_GROUPS = Path("/proc/thread-self/net/netfilter/nfnetlink_log")
_NETLINK_SOCKETS = Path("/proc/thread-self/net/netlink")

_NO_PRIVILEGE = (
    "CAP_NET_ADMIN is missing in the user namespace that owns the network namespace: run knft as root, or give its "
    "container that capability"
)

_PORT_PREFIX = 0x4B
"""The highest byte of the port ids that knft chooses. The kernel chooses process ids or numbers above 2**31."""
_PID_BITS = 22  # PID_MAX_LIMIT
_PORT_CHOICES = 4
"""How many port ids knft tries for its process id, since any process may use a port id."""


class InstanceLock:
    """The lock of the calling thread's network namespace, held until it is closed."""

    def __init__(self) -> None:
        """Take the lock.

        Raises InstanceLockedError, which names the process that holds it, if another process does; UnsupportedError
        without CAP_NET_ADMIN; KernelError if the kernel has no nfnetlink_log.
        """
        try:
            self._socket = _open_netlink(_port_ids(_host_process_id()))
        except OSError as error:
            if error.errno == errno.EPERM:
                raise UnsupportedError(_NO_PRIVILEGE) from error
            msg = f"the kernel does not answer nf_tables requests: {error.strerror}"
            raise KernelError(msg) from error
        # Otherwise a child process that outlives this one would keep the lock.
        os.register_at_fork(after_in_child=self.close)
        try:
            _bind_group(self._socket)
        except BaseException:
            self.close()
            raise

    @property
    def port_id(self) -> int:
        """The port id of the socket that holds the lock."""
        return int(self._socket.getsockname()[0])

    def close(self) -> None:
        """Release the lock; may be called twice."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.close()


def _host_process_id() -> int:
    """Return the id that the calling process has in the initial PID namespace."""
    with _open_netlink(()) as netlink:
        answer = _request(netlink, _GET_GENERATION, _REQUEST, 0, b"")
    return int.from_bytes(answer.attribute(nftables_messages.PROCESS_ID), "big")


def _port_ids(pid: int) -> Iterator[int]:
    for choice in range(_PORT_CHOICES):
        yield _PORT_PREFIX << 24 | choice << _PID_BITS | pid


def _open_netlink(port_ids: Iterable[int]) -> socket.socket:
    """Return a socket with the first of these port ids that is unused, or with one that the kernel chooses."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    for port_id in port_ids:
        with contextlib.suppress(OSError):
            netlink.bind((port_id, 0))
            return netlink
    netlink.bind((0, 0))
    return netlink


def _bind_group(netlink: socket.socket) -> None:
    try:
        _request(netlink, _LOG_CONFIG, _REQUEST | _ACK, GROUP, _BIND)
    except OSError as error:
        # The kernel answers EPERM, not EBUSY, if another socket has bound the group. CAP_NET_ADMIN is not missing:
        # _host_process_id requires it, too.
        if error.errno not in (errno.EPERM, errno.EBUSY):
            msg = f"cannot bind group {GROUP} of nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG): {error.strerror}"
            raise KernelError(msg) from error
    else:
        return
    port_id = _holder_port_id()
    raise InstanceLockedError(describe_holder(port_id), port_id)


def _request(netlink: socket.socket, kind: int, flags: int, group: int, attributes: bytes) -> nftables_messages.Message:
    """Send a request and return the answer; raise OSError if the kernel refuses the request."""
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(group)) + attributes
    netlink.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
    buffer = netlink.recv(_READ_BYTES)
    if _HEADER.unpack_from(buffer)[1] == _ERROR and (number := _CODE.unpack_from(buffer, _HEADER.size)[0]):
        raise OSError(-number, os.strerror(-number))
    return next(nftables_messages.split(buffer))


def holder_port_id() -> int | None:
    """Return the port id of the socket that holds the lock, None if no process does; raise OSError or ValueError."""
    for line in _GROUPS.read_text(encoding="ascii").splitlines():
        group, port_id = map(int, line.split()[:2])
        if group == GROUP:
            return port_id
    return None


def _holder_port_id() -> int | None:
    """Return the port id of the socket that has bound the group; None if only root may read it, or it just closed."""
    with contextlib.suppress(OSError, ValueError):
        return holder_port_id()
    return None


def holds_lock(pid: int, port_id: int) -> bool:
    """Tell whether a process has the socket that holds the lock; raise OSError if its open files cannot be read.

    ``pid`` is as this process's PID namespace numbers it. The kernel tells the socket's inode, so no process that only
    has the same user, or has chosen the same names, passes for the holder.
    """
    inode = _inode_of(port_id)
    files = Path(f"/proc/{pid}/fd").iterdir()
    return inode is not None and any(_link_of(file) == f"socket:[{inode}]" for file in files)


def _inode_of(port_id: int) -> str | None:
    """Return the inode of the netlink socket with a port id, of the protocol that the lock uses."""
    for line in _NETLINK_SOCKETS.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == [str(_NETFILTER), str(port_id)]:
            return fields[-1]
    return None


def _link_of(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
        return str(path.readlink())
    return ""


def describe_holder(port_id: int | None, process_text: str = "another knft process") -> str:
    """Return a message about the process whose socket with this port id holds the lock.

    ``process_text`` is what to call it.
    """
    if port_id is None:
        return f"{process_text}, whose id is unknown, runs in this network namespace"
    if port_id >> 24 != _PORT_PREFIX:
        return f"another process, whose netlink port id is {port_id}, has bound group {GROUP} of nfnetlink_log"
    pid = port_id & ((1 << _PID_BITS) - 1)
    if not sees_host_processes():
        return f"{process_text} runs in this network namespace: pid {pid} on the host"
    command = command_of(pid)
    return f"{process_text} runs in this network namespace: pid {pid}" + (f", {command!r}" if command else "")
