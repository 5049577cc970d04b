"""User-mode Linux: a kernel that runs as a process of this machine, some three times faster than one under qemu.

The programs run on this machine's processor; system calls go to the guest's kernel, which has a network stack of its
own.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.vm import initramfs
from tests.vm.errors import VmError
from tests.vm.guest import Guest
from tests.vm.guest_process import BIND_READ_ONLY, DIE_WITH_PARENT, wait_for_end
from tests.vm.kernel import Kernel

_MEMORY = "2048M"
# The processes of the guest are processes of this machine too. They would go on if only the kernel's own process was
# killed, so they are in a PID namespace. Its process 1 is a shell: as process 1, the kernel could not end itself.
_PID_NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
# Descriptor 3 is the second serial port.
_START = f"""
linux=$1 initramfs=$2 report=$3
shift 3
{BIND_READ_ONLY}
ulimit -c 0
"$linux" mem={_MEMORY} initrd="$initramfs" hostfs=/mnt uml_dir="${{report%/*}}" con=null con0=null,fd:1 ssl=null \\
    ssl1=null,fd:3 quiet random.trust_cpu=on 3>"$report"
"""
_CHECK = '"$0" mem=256M initrd="$1/initramfs" uml_dir="$1" con=null con0=null,fd:1 ssl=null quiet; exit $?'
_CHECK_SECONDS = 30.0


def guest(kernel: Kernel) -> Guest:
    """Return a guest with a kernel that is a program; raise VmError if it cannot run here.

    It needs ptrace, and memory that is shared and executable, which some containers refuse.
    """
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as folder:
        Path(folder, "initramfs").write_bytes(initramfs.that_powers_off())
        command = [*_PID_NAMESPACE, "sh", "-c", _CHECK, str(kernel.image), folder]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            msg = f"user-mode Linux cannot run here: it has not ended after {_CHECK_SECONDS:.0f} s"
            raise VmError(msg) from None
    if done.returncode != 0:
        msg = f"user-mode Linux cannot run here: {(done.stdout + done.stderr)[-500:].strip()}"
        raise VmError(msg)
    return Guest("user-mode", kernel, ("overlay",), "hostfs", _run)


def _run(kernel: Kernel, initrd: bytes, needed: Sequence[Path], time_limit: float) -> bytes:
    """Boot once, with the console on the terminal; return what the guest wrote to its second serial port.

    The guest sees this machine's root file system, and those of the ``needed`` paths, read only.
    """
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as name:
        folder = Path(name)
        (folder / "initramfs").write_bytes(initrd)
        report = folder / "report"
        script = ("sh", "-euc", _START, "sh", str(kernel.image), str(folder / "initramfs"), str(report))
        wait_for_end([*DIE_WITH_PARENT, *_PID_NAMESPACE, *script, *map(str, needed)], time_limit)
        return report.read_bytes()
