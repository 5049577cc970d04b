# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Drops all capabilities but CAP_NET_ADMIN, which nf_tables, conntrack and netlink require.

Afterwards the process cannot read files that only other users may read (CAP_DAC_OVERRIDE), bind ports below 1024
(CAP_NET_BIND_SERVICE) or open raw sockets, as iptables-legacy-save does (CAP_NET_RAW). It keeps its user, so that root
can still read its own files, such as tokens, certificates and sysctls.
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
_LAST_CAPABILITY_FILE = Path("/proc/sys/kernel/cap_last_cap")
_LAST_KNOWN_CAPABILITY = 40  # CAP_CHECKPOINT_RESTORE, of 5.9
_TASKS = Path("/proc/self/task")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_privileges() -> None:
    """Keep only CAP_NET_ADMIN, in all capability sets, permanently and for all child processes.

    This works for root and for other users that have CAP_NET_ADMIN. Call it while the process has one thread:
    capabilities belong to threads, and a new thread inherits those of its creator. Raises UnsupportedError if
    CAP_NET_ADMIN is missing, and RuntimeError if there are several threads. Without CAP_SETPCAP the bounding set stays
    unchanged; then an executed program can regain capabilities, and knft's own worker processes drop them again.
    """
    if len(list(_TASKS.iterdir())) > 1:
        msg = "cannot drop capabilities while the process has several threads"
        raise RuntimeError(msg)
    keep_net_admin()


def keep_net_admin() -> None:
    """Keep only CAP_NET_ADMIN in the calling thread, as in drop_privileges; raise UnsupportedError if it is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _reduce_bounding_set(libc, CAP_NET_ADMIN)
        # Inheritable and ambient, because child processes of a user other than root would have none otherwise.
        _set_capabilities(libc, 1 << CAP_NET_ADMIN)
        _prctl(libc, _PR_CAP_AMBIENT, _AMBIENT_CLEAR)
        with suppress(PermissionError):  # SECBIT_NO_CAP_AMBIENT_RAISE; root needs none.
            _prctl(libc, _PR_CAP_AMBIENT, _AMBIENT_RAISE, CAP_NET_ADMIN)
        _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        if error.errno != errno.EPERM:
            msg = f"cannot drop privileges: {error.strerror}"
            raise UnsupportedError(msg) from error
        msg = "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability"
        raise UnsupportedError(msg) from error


def drop_all_in_thread() -> None:
    """Drop all capabilities of the calling thread, and those of the programs that it starts; other threads keep theirs.

    Works with any user. Without CAP_SETPCAP the bounding set stays unchanged, but no executed program regains
    capabilities: with no_new_privs even one of root gets no more than the thread that starts it. Raises OSError if a
    security module forbids it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _reduce_bounding_set(libc, keep=None)
    _prctl(libc, _PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    _set_capabilities(libc, 0)


def _reduce_bounding_set(libc: ctypes.CDLL, keep: int | None) -> None:
    """Remove all other capabilities from the bounding set, if that is permitted."""
    with suppress(PermissionError):
        for capability in range(_last_capability() + 1):
            if capability != keep:
                _prctl(libc, _PR_CAPBSET_DROP, capability)


def _last_capability() -> int:
    try:
        return int(_LAST_CAPABILITY_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _LAST_KNOWN_CAPABILITY


def _set_capabilities(libc: ctypes.CDLL, only: int) -> None:
    data = (_Data * _WORDS)(_Data(only, only, only), _Data(0, 0, 0))
    _raise_on_error(libc.capset(ctypes.byref(_Header(_VERSION, 0)), ctypes.byref(data)))


def _prctl(libc: ctypes.CDLL, option: int, *arguments: int) -> None:
    filled = (*arguments, 0, 0, 0, 0)[:4]
    _raise_on_error(libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, filled)))


def _raise_on_error(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent exits."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
