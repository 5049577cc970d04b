"""What the two kinds of guests share: a read-only view of this machine's files, and a time limit."""

import subprocess
from collections.abc import Sequence

from tests.vm.errors import VmError

BIND_READ_ONLY = """
bind() {
    mount --bind "$1" "/mnt$1"
    mount -o remount,bind,ro "/mnt$1"
}
bind /
for path; do
    point=$(stat -c %m "$path")
    [ "$point" = / ] || mountpoint -q "/mnt$point" || bind "$point"
done
"""
"""A part of a shell script in a mount namespace of its own: it mounts this machine's files read only at /mnt.

The script's arguments are paths that the guest needs. A bind mount has no submounts: the guest has its own /proc, /sys
and /dev, and other file systems are bound only if a needed path is on one.
"""
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""The beginning of a command that the kernel kills when this process ends."""
OWN_PROCESSES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""The beginning of a command that has its own mounts, and whose processes all end with it."""


def wait_for_end(command: Sequence[str], time_limit: float) -> None:
    """Run a guest; raise VmError if it fails, or still runs after ``time_limit`` seconds."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as machine:
        try:
            status = machine.wait(time_limit)
        except subprocess.TimeoutExpired:
            msg = f"the guest was stopped after {time_limit:.0f} s"
            raise VmError(msg) from None
        finally:
            machine.kill()
    if status != 0:
        msg = f"the guest's process failed with status {status}"
        raise VmError(msg)
