"""Two short-lived programs that make a machine: ``boot`` enters cgroups and namespaces, ``init`` mounts file systems.

``python -m deploy.cluster.machine_init boot FOLDER`` runs unshare, which runs ``init`` as process 1; that then becomes
the supervisor.
"""

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from deploy.cluster.cgroups import Hierarchy
from deploy.cluster.supervisor import supervise

SETTINGS = "machine.json"
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
_CLONE_NEWCGROUP = 0x02000000
_INIT = "init"
"""The cgroup of v2 with the processes that are in no pod."""
_CGROUP = Path("/sys/fs/cgroup")


class MachineSettings(Struct, frozen=True):
    """What a machine consists of."""

    hostname: str
    cgroups: tuple[Hierarchy, ...] = ()
    overlays: Mapping[str, str] = {}
    """Directories whose changes go to a directory outside: the machine's writes stay in the cluster's state."""
    tmpfs: tuple[str, ...] = ()
    """Directories that are empty in the machine."""
    folders: tuple[str, ...] = ()
    """Directories to create in the machine, below ``overlays`` or ``tmpfs``."""
    files: Mapping[str, str] = {}
    """Files that are copied into the machine: the path there, and the one outside."""
    binds: Mapping[str, str] = {}
    """Directories and files that the machine sees at another path: the path there, and the one outside."""
    sysctls: Mapping[str, str] = {}
    """Sysctls of the machine's own namespaces."""


def main() -> None:
    """Run the part that the command line names."""
    part, folder = sys.argv[1], Path(sys.argv[2])
    settings = msgspec.json.decode((folder / SETTINGS).read_bytes(), type=MachineSettings)
    if part == "boot":
        _boot(folder, settings)
    _init(settings)
    # The checkout may be deleted or unmounted.
    os.chdir("/")
    supervise(folder)


def _boot(folder: Path, settings: MachineSettings) -> None:
    _enter_cgroups(settings.cgroups)
    command = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--propagation=private", "--mount-proc", "--"]
    os.execvp("unshare", [*command, sys.executable, "-m", "deploy.cluster.machine_init", "init", str(folder)])  # noqa: S606, S607


def _enter_cgroups(cgroups: tuple[Hierarchy, ...]) -> None:
    """Enter the cgroups, make them the roots of a cgroup namespace, and leave the root of v2.

    cgroup v2 has no controllers below a cgroup with processes.
    """
    _join(Path(each.folder) for each in cgroups)
    # os.unshare came with Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    children = [Path(each.folder, _INIT) for each in cgroups if each.is_v2]
    for child in children:
        child.mkdir(exist_ok=True)
    _join(children)


def _join(folders: Iterable[Path]) -> None:
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def _init(settings: MachineSettings) -> None:
    socket.sethostname(settings.hostname)
    if settings.cgroups:
        _mount_sysfs(settings.cgroups)
    for target, changes in settings.overlays.items():
        _mount_overlay(target, Path(changes))
    for target in settings.tmpfs:
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", target)
    for folder in settings.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for target, source in settings.files.items():
        _copy(Path(source), Path(target))
    for target, source in settings.binds.items():
        _mount("--bind", source, target)
    _set_sysctls(settings.sysctls)
    # A kubelet's volumes are mounted in the namespaces of containers, too.
    _mount("--make-rshared", "/")


def _set_sysctls(sysctls: Mapping[str, str]) -> None:
    for name, value in sysctls.items():
        path = Path("/proc/sys", name)
        # A kernel without IPv6 lacks some.
        if path.exists():
            path.write_text(value)


def _mount_overlay(target: str, changes: Path) -> None:
    upper, work = changes / "upper", changes / "work"
    for each in (upper, work):
        each.mkdir(parents=True, exist_ok=True)
    _mount("-t", "overlay", "-o", f"lowerdir={target},upperdir={upper},workdir={work}", "overlay", target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Often a symbolic link to a file in /run.
    target.unlink(missing_ok=True)
    target.write_bytes(source.read_bytes())


def _mount_sysfs(cgroups: tuple[Hierarchy, ...]) -> None:
    """Mount /sys of the machine's network namespace, and its cgroups as the roots of their hierarchies."""
    subprocess.run(["umount", "--lazy", "--recursive", "/sys"], check=True)  # noqa: S607
    _mount("-t", "sysfs", "sysfs", "/sys")
    if cgroups[0].is_v2:
        _mount("-t", "cgroup2", "cgroup2", str(_CGROUP))
        controllers = (_CGROUP / "cgroup.controllers").read_text().split()
        (_CGROUP / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        return
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(_CGROUP))
    for each in cgroups:
        target = _CGROUP / each.mount_name
        target.mkdir()
        options = f"none,{each.controllers}" if each.controllers.startswith("name=") else each.controllers
        _mount("-t", "cgroup", "-o", options, "cgroup", str(target))
        for alias in each.mount_name.split(","):
            if alias != each.mount_name:
                (_CGROUP / alias).symlink_to(each.mount_name)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S607


if __name__ == "__main__":
    main()
