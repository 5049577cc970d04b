# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Describes processes whose ids the kernel reports: those of the initial PID namespace, as the host numbers them.

/proc shows such a process only if this process is in the initial PID namespace, too.
"""

import ctypes
from contextlib import suppress
from pathlib import Path

from knft.kernel.printable_names import printable_name

MAX_COMMAND_LENGTH = 200
"""The most characters of a command line that are shown."""

_PROC = Path("/proc")
_INITIAL_PID_NAMESPACE = 0xEFFF_FFFC  # PROC_PID_INIT_INO
_PR_SET_NAME = 15
_WORKER_MODULE = "knft.kernel.worker"
_KNFT = "knft"
"""The name that worker processes give themselves; those of older versions have the name of their interpreter."""


def describe_process(pid: int, name: str) -> str:
    """Return text such as ``nft (pid 4711)``, from the name that the kernel reports; "" if nothing is known.

    For a worker process of knft, of any version, it is ``knft (pid N)`` with the id of the process that started it. If
    /proc does not show that, it is the worker's own id.
    """
    parent = _parent_of_worker(pid)
    if parent:
        return f"{_KNFT} (pid {parent})"
    return f"{name} (pid {pid})" if pid else name


def is_knft(described: str) -> bool:
    """Return whether ``describe_process`` returned this text for a process of knft."""
    return described.startswith(f"{_KNFT} (pid ")


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened and with unprintable characters replaced; "" if unknown."""
    return " ".join(_arguments(pid))[:MAX_COMMAND_LENGTH]


def sees_host_processes() -> bool:
    """Return whether this process is in the initial PID namespace."""
    try:
        return (_PROC / "self/ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def set_process_name(name: str) -> None:
    """Set the name of the calling thread, at most 15 bytes, which the kernel reports with its changes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def _arguments(pid: int) -> list[str]:
    if not pid or not sees_host_processes():
        return []
    try:
        arguments = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [printable_name(argument) for argument in arguments.rstrip(b"\0").split(b"\0")]


def _parent_of_worker(pid: int) -> int:
    """Return the parent's id if this is a worker process of knft, 0 otherwise."""
    if _WORKER_MODULE in _arguments(pid):
        with suppress(OSError, ValueError):
            status = (_PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace")
            return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)
    return 0
