"""Least privilege: of all capabilities CAP_NET_ADMIN alone is kept, which nf_tables, conntrack and netlink ask for.

What goes with the others: files that are readable by other users alone (CAP_DAC_OVERRIDE), ports below 1024
(CAP_NET_BIND_SERVICE), raw sockets, as iptables-legacy-save opens one (CAP_NET_RAW). The user stays the same, so that
root goes on reading its own files, such as tokens, certificates and the sysctls that belong to root.
"""

import ctypes
import errno
import os
import signal
from contextlib import suppress
from pathlib import Path

from knft.errors import UnsupportedError

CAP_NET_ADMIN = 12

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_WORDS = 2
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_LAST = Path("/proc/sys/kernel/cap_last_cap")
_LAST_KNOWN = 40  # CAP_CHECKPOINT_RESTORE, of 5.9
_TASKS = Path("/proc/self/task")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_privileges() -> None:
    """Keep CAP_NET_ADMIN and nothing more, in every set, for good and for all processes that are started later.

    As root and as another user that has it. To be called while there is one thread, as capabilities belong to threads:
    later ones have what the thread has that starts them. Raises UnsupportedError where it is not there to be kept,
    and RuntimeError among several threads. The bounding set stays as it is where CAP_SETPCAP is missing; then nothing
    but a program that is executed can have more, and knft's own give it up.
    """
    if len(list(_TASKS.iterdir())) > 1:
        msg = "capabilities belong to threads: they have to be dropped while there is one"
        raise RuntimeError(msg)
    keep_net_admin()


def keep_net_admin() -> None:
    """Do so for the calling thread; raise UnsupportedError where it has no CAP_NET_ADMIN."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _bound(libc)
        # Inheritable and ambient: a user other than root would have none in the processes that are started.
        _set(libc)
        _prctl(libc, _PR_CAP_AMBIENT, _AMBIENT_CLEAR)
        with suppress(PermissionError):  # SECBIT_NO_CAP_AMBIENT_RAISE; root needs none.
            _prctl(libc, _PR_CAP_AMBIENT, _AMBIENT_RAISE, CAP_NET_ADMIN)
        _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        if error.errno != errno.EPERM:
            msg = f"privileges cannot be dropped: {error.strerror}"
            raise UnsupportedError(msg) from error
        msg = "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability"
        raise UnsupportedError(msg) from error


def _bound(libc: ctypes.CDLL) -> None:
    """Take everything else out of the bounding set, where that is allowed."""
    with suppress(PermissionError):
        for capability in range(_last() + 1):
            if capability != CAP_NET_ADMIN:
                _prctl(libc, _PR_CAPBSET_DROP, capability)


def _last() -> int:
    try:
        return int(_LAST.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _LAST_KNOWN


def _set(libc: ctypes.CDLL) -> None:
    only = 1 << CAP_NET_ADMIN
    data = (_Data * _WORDS)(_Data(only, only, only), _Data(0, 0, 0))
    _checked(libc.capset(ctypes.byref(_Header(_VERSION, 0)), ctypes.byref(data)))


def _prctl(libc: ctypes.CDLL, option: int, *arguments: int) -> None:
    filled = (*arguments, 0, 0, 0, 0)[:4]
    _checked(libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, filled)))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that has made it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
