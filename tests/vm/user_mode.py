"""User-mode Linux: a kernel that runs as a process of this machine, some three times faster than one under qemu.

The programs run on this machine's processor; system calls go to the guest's kernel, which has a network stack of its
own. The guest's processes are processes of this machine too.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.vm import initramfs
from tests.vm.errors import UnsupportedHereError
from tests.vm.guest import Guest
from tests.vm.guest_process import BIND_READ_ONLY, DIE_WITH_PARENT, OWN_PROCESSES, wait_for_end
from tests.vm.kernel import Kernel

KIND = "user-mode"
# The guest's memory is a file in $TMPDIR. A new tmpfs has enough space, and lets the kernel execute it; /dev/shm may
# not. With hostfs, root in the guest can leave /mnt, so the other mounts with files become read only too.
# The shell stays process 1 of its PID namespace: as process 1, the kernel could not end itself. cat keeps a terminal
# from the kernel, which would change its settings. Descriptor 3 is the second serial port.
_START = f"""
linux=$1 folder=$2 memory=$3
shift 3
{BIND_READ_ONLY}
mount --bind "$folder" "$folder"
mkdir "$folder/memory"
mount -t tmpfs -o size=3G memory "$folder/memory"
while read -r _ _ _ _ point _; do
    case $point in
        "$folder"* | /proc* | /sys* | /dev*) ;;
        *) mount -o remount,bind,ro "$point" 2>/dev/null || true ;; # One that is hidden by another fails.
    esac
done </proc/self/mountinfo
ulimit -c 0
{{
    status=0
    TMPDIR=$folder/memory "$linux" mem="$memory" initrd="$folder/initramfs" hostfs=/mnt uml_dir="$folder" con=null \\
        con0=null,fd:1 ssl=null ssl1=null,fd:3 quiet random.trust_cpu=on 3>"$folder/report" 2>&1 || status=$?
    echo "$status" >"$folder/status"
}} | cat
exit "$(cat "$folder/status")"
"""
_MEMORY = "2048M"
_CHECK_MEMORY = "256M"
_CHECK_SECONDS = 120.0


def guest(kernel: Kernel) -> Guest:
    """Return a guest with a kernel that is a program; raise UnsupportedHereError if a first boot fails.

    It needs ptrace, and root's right to mount, which some containers refuse.
    """
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as folder:
        Path(folder, "initramfs").write_bytes(initramfs.that_powers_off())
        try:
            done = subprocess.run(
                _command(kernel, Path(folder), _CHECK_MEMORY),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            msg = f"user-mode Linux cannot run here: it has not ended after {_CHECK_SECONDS:.0f} s"
            raise UnsupportedHereError(msg) from None
    if done.returncode != 0:
        msg = f"user-mode Linux cannot run here: {(done.stdout + done.stderr)[-500:].strip()}"
        raise UnsupportedHereError(msg)
    return Guest(KIND, kernel, ("overlay",), "hostfs", _run)


def _run(kernel: Kernel, archive: bytes, needed: Sequence[Path], time_limit: float) -> bytes:
    """Boot once, with the console on standard output; return what the guest wrote to its second serial port.

    The guest sees this machine's root file system, and those of the ``needed`` paths, read only.
    """
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as name:
        folder = Path(name)
        (folder / "initramfs").write_bytes(archive)
        wait_for_end(_command(kernel, folder, _MEMORY, *needed), time_limit)
        return (folder / "report").read_bytes()


def _command(kernel: Kernel, folder: Path, memory: str, *needed: Path) -> list[str]:
    script = ("sh", "-euc", _START, "sh", str(kernel.image), str(folder), memory)
    return [*DIE_WITH_PARENT, *OWN_PROCESSES, *script, *map(str, needed)]
