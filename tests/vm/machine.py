"""The virtual machine: qemu without KVM, and the share of this machine's root file system."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import VmError
from .kernel import Kernel

_MEMORY = "2048M"
_VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
_SHARE_PATIENCE = 10.0
# Bind mounts show what is mounted below them only where asked: /proc, /sys and /dev are the guest's own.
_SERVE_READ_ONLY = """
set -eu
mount --bind / "$1"
mount -o remount,bind,ro "$1"
exec "$2" --socket-path="$3" -o source="$1" -o cache=always -o sandbox=chroot -o log_level=err
"""
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check random.trust_cpu=on"
)


def run(kernel: Kernel, initramfs: bytes, time_limit: float) -> bytes:
    """Boot once, showing the console; return what the guest wrote to its second serial port."""
    with tempfile.TemporaryDirectory(prefix="knft-vm-") as name:
        folder = Path(name)
        (folder / "initramfs").write_bytes(initramfs)
        report = folder / "report"
        with _share(folder) as socket:
            _emulate(_command(kernel, folder / "initramfs", socket, report), time_limit)
        return report.read_bytes()


@contextmanager
def _share(folder: Path) -> Iterator[Path]:
    """Serve the root file system at a socket; read only, as only a mount can be: virtiofsd has no option for that."""
    program = next((path for path in _VIRTIOFSD if Path(path).exists()), None)
    if program is None:
        msg = "virtiofsd is missing"
        raise VmError(msg)
    root, socket = folder / "root", folder / "socket"
    root.mkdir()
    script = ("sh", "-c", _SERVE_READ_ONLY, "sh", str(root), program, str(socket))
    with subprocess.Popen(["unshare", "--mount", "--propagation", "private", *script]) as server:
        try:
            _wait_for(socket, server)
            yield socket
        finally:
            server.kill()


def _wait_for(socket: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SHARE_PATIENCE
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            msg = "the root file system cannot be shared with the guest: this needs root, and mount namespaces"
            raise VmError(msg)
        time.sleep(0.02)


def _command(kernel: Kernel, initramfs: Path, socket: Path, report: Path) -> list[str]:
    settings = {
        "machine": "pc,usb=off",
        "accel": "tcg,thread=multi,tb-size=512",
        "cpu": "max,la57=off",
        "smp": "1",
        "m": _MEMORY,
        "display": "none",
        "kernel": str(kernel.image),
        "initrd": str(initramfs),
        "append": _KERNEL_ARGUMENTS,
    }
    flags = ("-nodefaults", "-no-user-config", "-no-reboot")
    serial = ("-serial", "stdio", "-serial", f"file:{report}")
    # virtiofsd reads the guest's memory, so that both have to map the same.
    shared = (
        *("-object", f"memory-backend-memfd,id=memory,size={_MEMORY},share=on", "-numa", "node,memdev=memory"),
        *("-chardev", f"socket,id=share,path={socket}", "-device", "vhost-user-fs-pci,chardev=share,tag=host"),
    )
    named = (word for name, value in settings.items() for word in (f"-{name}", value))
    return ["qemu-system-x86_64", *named, *flags, *serial, *shared]


def _emulate(command: list[str], time_limit: float) -> None:
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as machine:
        try:
            machine.wait(time_limit)
        except subprocess.TimeoutExpired:
            msg = f"the guest has not come to an end in {time_limit:.0f} s, and was stopped"
            raise VmError(msg) from None
        finally:
            machine.kill()
