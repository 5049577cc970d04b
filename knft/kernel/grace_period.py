"""Waits until no packet is in the middle of rules any more that was there before.

The kernel processes a packet from its arrival to its departure, with all hooks, in one read-side critical section of
RCU; one that a process of the host sends, in one for each hook. A grace period ends when all of the sections have ended
that had begun before it.
"""

import ctypes
import os
import sys
import time

_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""The numbers of the system call: libc has no function for it."""
_COMMAND_GLOBAL = 1

FALLBACK_SECONDS = 0.02
"""How long to wait where the system call does not. Grace periods took 5 to 20 ms on an idle machine (6.18, 250 Hz)."""


def wait_for_grace_period() -> bool:
    """Wait for a grace period of the kernel; return whether the kernel could do so, and not only time passed.

    membarrier(2) with MEMBARRIER_CMD_GLOBAL waits for one in Linux 4.3 to 6.18, and returns at once if there is only
    one CPU. It fails on kernels that run CPUs without a tick (boot option nohz_full), and where a seccomp filter does
    not allow it.
    """
    # A 32-bit program has other numbers, also on a 64-bit kernel.
    number = _MEMBARRIER.get(os.uname().machine) if sys.maxsize > 1 << 32 else None
    if number is not None and ctypes.CDLL(None).syscall(number, _COMMAND_GLOBAL, 0, 0) == 0:
        return True
    time.sleep(FALLBACK_SECONDS)
    return False
