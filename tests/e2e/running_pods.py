"""The privileges of knft's processes in its running pods, which deploy/kustomize promises, as /proc shows them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from deploy.cluster.cluster import Cluster
from tests.support.process_privileges import NET_ADMIN, SECCOMP_FILTER, parse_mounts, parse_status
from tests.support.processes import processes_of_pod

_ROOT = "mount of /"
EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), NET_ADMIN),
    **dict.fromkeys(("CapInh", "CapAmb"), "0" * len(NET_ADMIN)),
    "Seccomp": SECCOMP_FILTER,
    "NoNewPrivs": "1",
    "Uid": "0 0 0 0",
    _ROOT: "ro",
}
_ROLES = {"/usr/bin/knft": "main process", "knft.kernel.worker": "worker process"}
"""Words of the command lines. A pod's other process holds its namespaces."""


class PodProcess(Struct, frozen=True):
    """A process of knft in a pod; ``found`` has the names of ``EXPECTED``."""

    role: str
    pid: int
    found: Mapping[str, str]


def knft_pods(cluster: Cluster, selector: str) -> list[dict[str, Any]]:
    """Return the pods with a label."""
    arguments = ("--namespace=kube-system", f"--selector={selector}", "--output=json")
    return list(json.loads(cluster.kubectl("get", "pods", *arguments))["items"])


def check_pods(pods: Sequence[dict[str, Any]], expected: Mapping[str, str] = EXPECTED) -> list[str]:
    """Print a line for each pod; return how the processes differ from what is expected."""
    problems = [] if pods else ["no pod of knft is running"]
    for pod in pods:
        name = f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        processes = list(_processes(pod["metadata"]["uid"]))
        different = list(differences(processes, expected))
        problems += [f"{name}: {text}" for text in different]
        listed = ", ".join(f"{each.role} {each.pid}" for each in processes)
        values = ", ".join(f"{field} {value}" for field, value in expected.items())
        print(f"e2e: {name}: {listed}: {'; '.join(different) or values}", flush=True)
    return problems


def differences(processes: Sequence[PodProcess], expected: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences of a pod's processes, and the processes that it lacks."""
    for role in _ROLES.values():
        if role not in [each.role for each in processes]:
            yield f"no {role} is running"
    for each in processes:
        for field, value in expected.items():
            if each.found[field] != value:
                yield f"{field} of {each.role} {each.pid} is {each.found[field]!r}, not {value!r}"


def _processes(uid: str) -> Iterator[PodProcess]:
    for pid in sorted(processes_of_pod(uid)):
        folder = Path(f"/proc/{pid}")
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            texts = [(folder / name).read_text() for name in ("status", "mountinfo")]
        except OSError:  # It has ended.
            continue
        for word, role in _ROLES.items():
            if word in words:
                yield PodProcess(role, pid, read_values(*texts))


def read_values(status: str, mountinfo: str) -> Mapping[str, str]:
    """Return the values of a process's /proc/PID/status and mountinfo that are compared."""
    fields, root = parse_status(status), parse_mounts(mountinfo)["/"]
    return {name: fields[name] for name in EXPECTED if name != _ROOT} | {_ROOT: "ro" if root.is_read_only else "rw"}
