"""What a cluster has on this machine while it runs, and what of it is left when it was removed. Computes only.

Other processes of the machine go on meanwhile. So everything has to be equal only where just a cluster would change it:
sysctls, and the files of nodes. Of the rest, what is new counts only if it is the cluster's by its name or its
directory, or belongs to a process or a namespace of the running cluster.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from deploy.cluster.network import BRIDGE
from tests.support.machine_state import NODE_PATHS, MachineState, Process

_NODE_LINKS = re.compile(rf"{BRIDGE}|node\d+|veth[0-9a-f]{{8}}|kube-ipvs0|nodelocaldns")
"""Names of the cluster's and CNI's links."""
_CGROUPS = re.compile(r"(?!.*/knft-[0-9a-f]{8}-).*/(kubepods|k8s\.io|knft-launcher)$")
"""Cgroups outside those of a cluster: others may run."""
_TABLES = re.compile(r" (knft\S*|kube-proxy\S*|cni\S*)$")
_FILES = re.compile(r"/(knft|kube|containerd|etcd|cni)[^/]*$")
"""Names of services, and of CNI's network namespaces."""
_NODE_FOLDERS = tuple(f"{path}/" for path in NODE_PATHS)


class ClusterNames(Struct, frozen=True):
    """How a cluster's own things are called."""

    folder: Path
    cgroup_prefix: str


class ClusterTraces(Struct, frozen=True):
    """The processes, namespaces and cgroups of a running cluster."""

    names: ClusterNames
    processes: frozenset[tuple[int, str]]
    """Ids and start times."""
    namespaces: frozenset[str]
    """Their numbers, which are used again, too."""
    cgroups: frozenset[str]
    recorded: int
    """The start time of the newest process."""


def find_traces(before: MachineState, running: MachineState, names: ClusterNames, machine: int) -> ClusterTraces:
    """Return what belongs to a running cluster; ``machine`` is process 1 of its control plane."""
    old = {(each.pid, each.started) for each in before.processes}
    outside = frozenset().union(*(each.namespaces for each in before.processes))
    inside = frozenset().union(*(each.namespaces for each in running.processes if each.pid == machine)) - outside
    found = [each for each in running.processes if _is_of_cluster(each, names, machine, inside)]
    processes = frozenset((each.pid, each.started) for each in found) - old
    namespaces = frozenset().union(*(each.namespaces for each in found)) - outside
    cgroups = frozenset(path for path in running.cgroups - before.cgroups if names.cgroup_prefix in path)
    recorded = max(int(each.started) for each in running.processes)
    return ClusterTraces(names, processes, namespaces, cgroups, recorded)


def _is_of_cluster(process: Process, names: ClusterNames, machine: int, inside: frozenset[str]) -> bool:
    """Tell whether a process is in the cluster's cgroups or the control plane's namespaces, or helps to run them."""
    command = process.command
    if f"/{names.cgroup_prefix}-" in process.cgroups or process.namespaces & inside:
        return True
    return " -m deploy.cluster." in command and (str(names.folder) in command or f" {machine} " in command)


def leftovers(before: MachineState, after: MachineState, traces: ClusterTraces) -> list[str]:
    """Return what a removed cluster has left or changed."""
    return [
        *_changed_sysctls(before, after),
        *(f"network link {name} is left" for name in sorted(after.links - before.links) if _NODE_LINKS.fullmatch(name)),
        *(f"nftables' {text} is left" for text in sorted(after.tables - before.tables) if _TABLES.search(text)),
        *_left_cgroups(before, after, traces),
        *_left_mounts(before, after, traces),
        *_changed_paths(before, after, traces.names),
        *_left_processes(after, traces),
    ]


def _changed_sysctls(before: MachineState, after: MachineState) -> Iterator[str]:
    """Yield changes; sysctls of network links and kernel modules come and go with these."""
    for name in sorted(before.sysctls.keys() & after.sysctls.keys()):
        old, new = before.sysctls[name], after.sysctls[name]
        if old != new:
            yield f"sysctl {name} is {new!r}; it was {old!r}"


def _left_cgroups(before: MachineState, after: MachineState, traces: ClusterTraces) -> Iterator[str]:
    new = after.cgroups - before.cgroups
    left = {
        path for path in new if path in traces.cgroups or traces.names.cgroup_prefix in path or _CGROUPS.fullmatch(path)
    }
    yield from (f"cgroup {path} is left" for path in sorted(left) if str(Path(path).parent) not in left)
    if after.own_cgroups != before.own_cgroups:
        yield f"the cgroups of this process are {after.own_cgroups!r}; they were {before.own_cgroups!r}"


def _left_mounts(before: MachineState, after: MachineState, traces: ClusterTraces) -> Iterator[str]:
    for line in sorted(after.mounts - before.mounts):
        target = line.split()[2]
        if str(traces.names.folder) in line or f"{target}/".startswith(_NODE_FOLDERS):
            yield f"mount {line} is left"


def _changed_paths(before: MachineState, after: MachineState, names: ClusterNames) -> Iterator[str]:
    for path in sorted(before.paths ^ after.paths):
        if path in (*NODE_PATHS, str(names.folder)) or _FILES.search(path):
            yield f"{path} was {'created' if path in after.paths else 'deleted'}"


def _left_processes(after: MachineState, traces: ClusterTraces) -> Iterator[str]:
    for each in after.processes:
        is_known = (each.pid, each.started) in traces.processes
        held = each.namespaces & traces.namespaces if int(each.started) <= traces.recorded else ()
        if is_known or held or f"/{traces.names.cgroup_prefix}-" in each.cgroups:
            yield f"process {each.pid} ({each.command[:80]}) is left{''.join(f', in {name}' for name in sorted(held))}"
