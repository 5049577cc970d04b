"""Holds the instance lock while a command changes this network namespace; see docs/design/instance-lock.md."""

import logging
import time
from contextlib import AbstractContextManager, nullcontext

from knft.errors import InstanceLockedError, KernelError
from knft.kernel.instance_lock import InstanceLock

log = logging.getLogger("knft")

POLL_SECONDS = 1.0
"""Time between two attempts to take the lock: the kernel does not report its release."""


def take_instance_lock(*, wait: bool) -> AbstractContextManager[InstanceLock | None]:
    """Return the lock, which the caller closes; None as context, after a warning, if the kernel has no such lock.

    If another process holds it, ``wait`` until that process exits, or raise InstanceLockedError. Raises
    UnsupportedError without CAP_NET_ADMIN.
    """
    is_waiting = False
    holder: int | None = None
    while True:
        try:
            lock = InstanceLock()
        except InstanceLockedError as error:
            if not wait:
                raise
            # Compared by port id: a process that is ending has no command line any more, so the text changes.
            if not is_waiting or error.port_id not in (holder, None):
                log.warning("%s; waiting until it exits (--wait-for-lock)", error)
            is_waiting, holder = True, error.port_id or holder
            time.sleep(POLL_SECONDS)
        except KernelError as error:
            log.warning("%s: knft cannot notice another knft process in this network namespace", error)
            return nullcontext()
        else:
            if is_waiting:
                log.info("the other process has exited; starting")
            return lock
