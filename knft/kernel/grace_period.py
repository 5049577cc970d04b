"""Waits until the kernel has finished all packets that it was processing.

It processes a received packet in one read-side critical section of RCU, from its arrival to its departure. A grace
period ends when all sections have ended that had begun before it. docs/design/transaction-phases.md#grace-period names
the exceptions.
"""

import ctypes
import os
import sys
import time

_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "loongarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""The numbers of the system call: libc has no function for it."""
_COMMAND_GLOBAL = 1

FALLBACK_SECONDS = 0.1
"""How long to sleep instead if the call fails. On a busy machine, one of ten grace periods takes 77 ms or more."""


def wait_for_grace_period() -> bool:
    """Wait for a grace period of the kernel; return False if this only slept, because the kernel refused the call.

    membarrier(2) with MEMBARRIER_CMD_GLOBAL waits for one (tested with Linux 6.18; so does the source of 4.3 and
    later), and returns at once if there is only one CPU. It fails on kernels that run CPUs without a tick (boot option
    nohz_full), and where a seccomp filter does not allow it.
    """
    # A 32-bit program has other numbers, also on a 64-bit kernel.
    number = _MEMBARRIER.get(os.uname().machine) if sys.maxsize > 1 << 32 else None
    if number is not None and ctypes.CDLL(None).syscall(number, _COMMAND_GLOBAL, 0, 0) == 0:
        return True
    time.sleep(FALLBACK_SECONDS)
    return False
