"""The nodes' cgroups: children of this process's own cgroup, in each hierarchy of cgroup v1, or in the one of v2.

A node's process 1 sees its cgroup as the root, because it has a cgroup namespace. Nothing else of the machine's cgroups
changes, with two exceptions on v2: controllers for children are enabled in the own cgroup, and its processes may have
to move for that (``_delegate``).
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from deploy.programs.errors import SetupError

_UNIFIED = ""
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
_REMOVAL_SECONDS = 10.0
_LAUNCHER = "knft-launcher"


class Hierarchy(Struct, frozen=True):
    """A cgroup of a hierarchy; ``controllers`` are such as ``cpu,cpuacct`` or ``name=systemd``, and empty for v2."""

    controllers: str
    folder: str

    @property
    def is_v2(self) -> bool:
        """Whether this is the hierarchy of cgroup v2."""
        return self.controllers == _UNIFIED

    @property
    def mount_name(self) -> str:
        """The name of the directory in /sys/fs/cgroup, for a hierarchy of v1."""
        return self.controllers.removeprefix("name=")

    def child(self, name: str) -> "Hierarchy":
        """Return a child cgroup."""
        return Hierarchy(self.controllers, f"{self.folder}/{name}")


def own_cgroups() -> tuple[Hierarchy, ...]:
    """Return this process's cgroups; raise SetupError if they are not visible."""
    found = parse_cgroups(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    missing = [each.folder for each in found if not Path(each.folder).is_dir()]
    if not found or missing:
        msg = f"the cgroups of this process are not visible: {', '.join(missing) or 'no cgroup file system is mounted'}"
        raise SetupError(msg)
    return found


def parse_cgroups(cgroup: str, mountinfo: str) -> tuple[Hierarchy, ...]:
    """Return the cgroups from the texts of /proc/self/cgroup and /proc/self/mountinfo.

    If v1 and v2 are both mounted, v1 has the controllers.
    """
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in cgroup.splitlines())}
    mounts = list(_mounts(mountinfo))
    first = [
        Hierarchy(controllers, _below(mount_point, root, path))
        for controllers, path in paths.items()
        for mount_point, root, version, options in mounts
        if controllers != _UNIFIED and version == "cgroup" and set(controllers.split(",")) <= options
    ]
    second = [
        # An earlier call may have moved this process, see ``_move_aside``.
        Hierarchy(_UNIFIED, _below(mount_point, root, paths[_UNIFIED]).removesuffix(f"/{_LAUNCHER}"))
        for mount_point, root, version, _ in mounts
        if version == "cgroup2" and _UNIFIED in paths
    ]
    return tuple(first) or tuple(second[:1])


def _mounts(mountinfo: str) -> Iterator[tuple[str, str, str, set[str]]]:
    """Yield mount point, root, type and options of each file system."""
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        fields, (version, _, options) = mount.split(), system.split(" ", 2)
        yield fields[4], fields[3], version, set(options.split(","))


def _below(mount_point: str, root: str, path: str) -> str:
    relative = path.removeprefix(root) if root != "/" else path
    return f"{mount_point}/{relative.strip('/')}".rstrip("/")


def create(name: str, own: Sequence[Hierarchy]) -> tuple[Hierarchy, ...]:
    """Create a child of each cgroup, with the given name; raise SetupError if that is forbidden."""
    children = tuple(each.child(name) for each in own)
    try:
        for parent, child in zip(own, children, strict=True):
            if parent.is_v2:
                _delegate(parent)
            Path(child.folder).mkdir(exist_ok=True)
            if "cpuset" in child.controllers.split(","):
                _inherit_cpus(Path(parent.folder), Path(child.folder))
    except OSError as error:
        msg = f"cannot create a cgroup below this process's own: {error}"
        raise SetupError(msg) from error
    return children


def _inherit_cpus(parent: Path, child: Path) -> None:
    """Set processors and memory nodes, which a new cgroup of v1 lacks, also for the children of the node."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        (child / name).write_text((parent / name).read_text())
    (child / "cgroup.clone_children").write_text("1")


def _delegate(own: Hierarchy) -> None:
    """Enable the controllers for children of this process's cgroup.

    cgroup v2 refuses that while the cgroup has processes; so this process and its ancestors move to a child of it.
    ``remove`` moves them back.
    """
    folder = Path(own.folder)
    available = (folder / "cgroup.controllers").read_text().split()
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    wanted = [name for name in _V2_CONTROLLERS if name in available and name not in enabled]
    if missing := {"cpu", "memory", "pids"} - set(available):
        msg = f"cgroup {folder} lacks the controllers {', '.join(sorted(missing))}: {_ADVICE}"
        raise SetupError(msg)
    if not wanted:
        return
    text = " ".join(f"+{name}" for name in wanted)
    try:
        (folder / "cgroup.subtree_control").write_text(text)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _move_aside(folder)
        (folder / "cgroup.subtree_control").write_text(text)


_ADVICE = "run systemd-run --scope --property=Delegate=yes make cluster"


def _move_aside(folder: Path) -> None:
    pids = set((folder / "cgroup.procs").read_text().split())
    if foreign := pids - set(map(str, _ancestors(os.getpid()))):
        msg = f"cgroup {folder} has other processes ({', '.join(sorted(foreign))}): {_ADVICE}"
        raise SetupError(msg)
    launcher = folder / _LAUNCHER
    launcher.mkdir(exist_ok=True)
    _move(sorted(pids), launcher)


def _ancestors(pid: int) -> Iterator[int]:
    """Yield a process's id and those of its ancestors."""
    while pid > 0:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _move(pids: Iterable[str], folder: Path) -> None:
    for pid in pids:
        (folder / "cgroup.procs").write_text(pid)


def processes(cgroups: Iterable[Hierarchy]) -> set[int]:
    """Return the ids of the processes in cgroups and their children."""
    return {
        int(line)
        for each in cgroups
        for file in Path(each.folder).rglob("cgroup.procs")
        for line in file.read_text().split()
    }


def remove(cgroups: Sequence[Hierarchy]) -> None:
    """Remove cgroups with all their children, whose processes have been killed; raise SetupError if that fails."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    for each in cgroups:
        folder = Path(each.folder)
        while folder.is_dir():
            try:
                _remove_tree(folder)
            except OSError as error:
                # The kernel empties a cgroup some time after the end of its processes.
                if time.monotonic() > deadline:
                    msg = f"cannot remove cgroup {folder}: {error}"
                    raise SetupError(msg) from error
                time.sleep(0.05)
        if each.is_v2:
            _restore(folder.parent)


def _remove_tree(folder: Path) -> None:
    for child in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        child.rmdir()
    folder.rmdir()


def _restore(folder: Path) -> None:
    """Undo ``_move_aside`` when the last node's cgroup is gone."""
    launcher = folder / _LAUNCHER
    if [path for path in folder.iterdir() if path.is_dir()] != [launcher]:
        return
    # Nodes are removed at the same time, and each may be the last one.
    with suppress(FileNotFoundError):
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        (folder / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in enabled))
        _move((launcher / "cgroup.procs").read_text().split(), folder)
        launcher.rmdir()
