"""Tells whether a process has a file open for writing, so that a half-written file is not read.

The kernel grants a read lease on a file only if no process has it open for writing (fcntl_locking(2), "Leases"). The
lease is returned at once. A process that opens the file for writing in between waits for microseconds, and the kernel
sends this process SIGURG, which has no effect, in place of SIGIO, which would end it.
"""

import fcntl
import os
import signal
from errno import EAGAIN

from knft.source.file_systems import file_system_type

_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3"})
"""They refuse leases for other reasons too."""


def has_writer(descriptor: int) -> bool | None:
    """Tell whether a process has the file open for writing; None if the kernel does not tell.

    ``descriptor`` must be open for reading only. The kernel tells only the file's owner (and CAP_LEASE), and not on
    every file system.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == EAGAIN and file_system_type(os.fstat(descriptor).st_dev) not in _NETWORK_FILE_SYSTEMS:
            return True
        return None
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
