"""The virtual machine: qemu without KVM, and virtiofsd, which shares this machine's files."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.vm.errors import VmError
from tests.vm.guest import Guest
from tests.vm.guest_process import BIND_READ_ONLY, DIE_WITH_PARENT, wait_for_end
from tests.vm.kernel import Kernel

KIND = "qemu"
_MEMORY = "2048M"
_VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
_SHARE_TIMEOUT = 60.0
_SERVE = f"""
socket=$1
shift
{BIND_READ_ONLY}
exec {_VIRTIOFSD} --socket-path="$socket" -o source=/mnt -o cache=always -o sandbox=chroot -o log_level=err
"""
_KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check random.trust_cpu=on"


def guest(kernel: Kernel) -> Guest:
    """Return a guest with a kernel of Debian."""
    return Guest(KIND, kernel, ("virtio_pci", "virtiofs", "overlay"), "virtiofs", _run)


def _run(kernel: Kernel, initramfs: bytes, needed: Sequence[Path], time_limit: float) -> bytes:
    """Boot once, with the console on the terminal; return what the guest wrote to its second serial port.

    The guest sees this machine's root file system, and those of the ``needed`` paths.
    """
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as name:
        folder = Path(name)
        (folder / "initramfs").write_bytes(initramfs)
        report = folder / "report"
        with _share(folder, needed) as socket:
            wait_for_end(_command(kernel, folder / "initramfs", socket, report), time_limit)
        return report.read_bytes()


@contextmanager
def _share(folder: Path, needed: Sequence[Path]) -> Iterator[Path]:
    """Serve the files read only at a socket. virtiofsd has no option for that, so it serves a read-only mount."""
    socket = folder / "socket"
    script = ("sh", "-euc", _SERVE, "sh", str(socket), *map(str, needed))
    command = [*DIE_WITH_PARENT, "unshare", "--mount", "--propagation", "private", *script]
    # virtiofsd reports the end of the machine as an error, so its log is printed only if it does not start.
    with (folder / "log").open("w+") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            _wait_for(socket, server, log)
            yield socket
        finally:
            server.kill()


def _wait_for(socket: Path, server: subprocess.Popen[bytes], log: IO[str]) -> None:
    deadline = time.monotonic() + _SHARE_TIMEOUT
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            msg = f"cannot share files with the guest; run this as root, with the right to mount: {log.read().strip()}"
            raise VmError(msg)
        time.sleep(0.02)


def _command(kernel: Kernel, initramfs: Path, socket: Path, report: Path) -> list[str]:
    settings = {
        "machine": "pc,usb=off",
        "accel": "tcg,thread=multi,tb-size=512",
        # Without fast string instructions, programs copy eight bytes at a time. qemu 7.2 executes each step of a string
        # instruction by itself.
        "cpu": "max,la57=off,erms=off,fsrm=off",
        "smp": "1",
        "m": _MEMORY,
        "display": "none",
        "kernel": str(kernel.image),
        "initrd": str(initramfs),
        "append": _KERNEL_ARGUMENTS,
    }
    flags = ("-nodefaults", "-no-user-config", "-no-reboot")
    serial = ("-serial", "stdio", "-serial", f"file:{report}")
    # virtiofsd reads and writes the guest's memory, so both have to map the same file.
    shared = (
        *("-object", f"memory-backend-memfd,id=memory,size={_MEMORY},share=on", "-numa", "node,memdev=memory"),
        *("-chardev", f"socket,id=share,path={socket}", "-device", "vhost-user-fs-pci,chardev=share,tag=host"),
    )
    named = (word for name, value in settings.items() for word in (f"-{name}", value))
    return [*DIE_WITH_PARENT, "qemu-system-x86_64", *named, *flags, *serial, *shared]
