"""Lists one table, as a process of its own: ``python -m knft.kernel.lister ip knft``.

A listing can crash the library when another version of it made the table (libnftables 1.0.6 on a set made by
1.1.3), and must not take the daemon with it. Status 3 means that there is no such table.
"""

import signal
import sys

from knft.errors import KernelError
from knft.kernel.library import Library

NO_SUCH_TABLE = 3


def main(family: str, table: str) -> int:
    """Print the table as JSON; return the exit status."""
    # The daemon waits for its signals in a thread and blocks them elsewhere; a child inherits that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        sys.stdout.write(Library().run(f"list table {family} {table}"))
    except KernelError as error:
        sys.stderr.write(error.detail or str(error))
        return NO_SUCH_TABLE if "No such file or directory" in error.detail else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
