"""MachineState: what of this machine a cluster could change, to compare before its start with after its end."""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from deploy.cluster.node_files import KUBELET_SYSCTLS

_SYSCTLS = Path("/proc/sys")
_CGROUPS = Path("/sys/fs/cgroup")
_COUNTERS = frozenset({"net/netfilter/nf_conntrack_count"})
"""Sysctls that change by themselves."""
NODE_PATHS = (
    *("/etc/cni", "/etc/containerd", "/etc/kubernetes", "/opt/cni", "/run/cni-ipam", "/run/containerd", "/var/lib/cni"),
    *("/var/lib/containerd", "/var/lib/kubelet", "/var/lib/kube-proxy", "/var/lib/knft"),
    *("/var/log/containers", "/var/log/pods"),
)
"""Where a kubelet, containerd, CNI plugins and a Service proxy write on a node."""
_LISTED = ("/etc/init.d", "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/run/netns")
"""Directories of services, and of network namespaces with names."""


class Process(Struct, frozen=True):
    """A process; with its start time, because ids are used again."""

    pid: int
    started: str
    command: str
    cgroups: str
    namespaces: frozenset[str]
    """Such as ``net:[4026531840]``."""


class MachineState(Struct, frozen=True):
    """The state at one time, as this process sees it."""

    sysctls: Mapping[str, str]
    links: frozenset[str]
    tables: frozenset[str]
    """nftables tables of this network namespace."""
    cgroups: frozenset[str]
    """Directories of cgroups."""
    own_cgroups: str
    mounts: frozenset[str]
    """Lines of /proc/self/mountinfo without the numbers."""
    paths: frozenset[str]
    """Directories of nodes, files of services, and names of network namespaces."""
    processes: tuple[Process, ...]


def read_machine_state(*paths: Path) -> MachineState:
    """Return the present state; ``paths`` are further ones to look for."""
    return MachineState(
        sysctls=dict(_read_sysctls()),
        links=frozenset(name for _, name in socket.if_nameindex()),
        tables=frozenset(_nft("list", "tables").splitlines()),
        cgroups=frozenset(folder for folder, _, _ in os.walk(_CGROUPS)),
        own_cgroups=Path("/proc/self/cgroup").read_text(),
        mounts=frozenset(line.split(" ", 2)[2] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        paths=frozenset(_present_paths(paths)),
        processes=tuple(_read_processes()),
    )


def _read_sysctls() -> Iterator[tuple[str, str]]:
    """Yield those of the network, and those that a kubelet sets."""
    found = [str(path.relative_to(_SYSCTLS)) for path in (_SYSCTLS / "net").rglob("*") if path.is_file()]
    for name in {*found, *KUBELET_SYSCTLS} - _COUNTERS:
        with suppress(OSError, UnicodeDecodeError):  # Some can only be written, or are not set.
            yield name, (_SYSCTLS / name).read_text().strip()


def _present_paths(further: Sequence[Path]) -> Iterator[str]:
    yield from (path for path in (*NODE_PATHS, *map(str, further)) if Path(path).exists())
    for folder in _LISTED:
        with suppress(OSError):  # It does not exist.
            yield from map(str, Path(folder).iterdir())


def _nft(*arguments: str) -> str:
    return subprocess.run(["nft", *arguments], capture_output=True, text=True, check=True).stdout  # noqa: S607


def _read_processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended.
            state, started = process_times((folder / "stat").read_text())
            if state != "Z":
                yield Process(
                    int(folder.name),
                    started,
                    (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip(),
                    (folder / "cgroup").read_text(),
                    frozenset(str(link.readlink()) for link in (folder / "ns").iterdir()),
                )


def process_times(stat: str) -> tuple[str, str]:
    """Return the state and the start time of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]
