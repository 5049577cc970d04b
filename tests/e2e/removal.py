"""Checks that the removal of a cluster leaves nothing of it on this machine, and that it has changed nothing else."""

import time

from deploy.cluster.cluster import Cluster
from tests.support.cluster_traces import ClusterNames, ClusterTraces, find_traces, leftovers
from tests.support.machine_state import read_machine_state

_SECONDS = 60.0
"""How long the kernel may take to end processes and namespaces."""
_INTERVAL = 0.5


class RemovalCheck:
    """The machine before the start of a cluster, and what the running cluster has on it."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the state of the machine; the cluster does not exist yet."""
        self._cluster = cluster
        self._names = ClusterNames(cluster.state.folder, cluster.state.cgroup_prefix)
        self._before = read_machine_state(cluster.state.folder)
        self._traces: ClusterTraces | None = None

    def record(self) -> None:
        """Remember the processes, namespaces and cgroups of the running cluster."""
        running, machine = read_machine_state(self._names.folder), self._cluster.control_plane.machine.pid
        self._traces = find_traces(self._before, running, self._names, machine)

    def problems(self) -> list[str]:
        """Return what the removed cluster has left or changed."""
        traces = self._traces
        if traces is None or not (traces.processes and traces.namespaces and traces.cgroups):
            return ["the processes, namespaces or cgroups of the running cluster were not found"]
        counts = (
            f"{len(traces.processes)} processes, {len(traces.namespaces)} namespaces, {len(traces.cgroups)} cgroups"
        )
        found = self._wait_for_removal(traces)
        left = f"{len(found)} things are left or changed" if found else "nothing is left, and nothing has changed"
        print(f"e2e: the cluster had {counts}; after its removal, {left}", flush=True)
        return found

    def _wait_for_removal(self, traces: ClusterTraces) -> list[str]:
        """Return what is left after some time."""
        deadline = time.monotonic() + _SECONDS
        while found := leftovers(self._before, read_machine_state(self._names.folder), traces):
            if time.monotonic() > deadline:
                break
            time.sleep(_INTERVAL)
        return found
