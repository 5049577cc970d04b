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
_GRANTED = {
    **dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), NET_ADMIN),
    "Seccomp": SECCOMP_FILTER,
    "NoNewPrivs": "1",
    "Uid": "0 0 0 0",
    _ROOT: "ro",
}
_COMMAND = "command in the container"
_MAIN, _WORKER = "main process", "worker process"
_WORDS = {"/usr/bin/knft": _MAIN, "knft.kernel.worker": _WORKER}
"""Words of the command lines. A pod's other process holds its namespaces."""
_OWN = {**_GRANTED, "CapInh": NET_ADMIN, "CapAmb": NET_ADMIN}
EXPECTED: Mapping[str, Mapping[str, str]] = {
    # knft itself drops capabilities: only another process shows those that the pod has.
    _COMMAND: {**_GRANTED, "CapInh": "0" * len(NET_ADMIN), "CapAmb": "0" * len(NET_ADMIN)},
    _MAIN: _OWN,
    _WORKER: _OWN,
}
_PRINT = (
    "python3",
    "-c",
    "print(open('/proc/self/status').read(), open('/proc/self/mountinfo').read(), sep='\\0', end='')",
)


class PodProcess(Struct, frozen=True):
    """A process in a pod, and its values; its ``role`` is one of ``EXPECTED``, its id 0 if it has ended."""

    role: str
    pid: int
    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """The role and the id."""
        return f"{self.role} {self.pid}" if self.pid else self.role


def knft_pods(cluster: Cluster, selector: str) -> list[dict[str, Any]]:
    """Return the pods with a label that are not being deleted."""
    arguments = ("--namespace=kube-system", f"--selector={selector}", "--output=json")
    found = json.loads(cluster.kubectl("get", "pods", *arguments))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def check_pods(
    cluster: Cluster, pods: Sequence[dict[str, Any]], expected: Mapping[str, Mapping[str, str]] = EXPECTED
) -> list[str]:
    """Print a line for each pod; return how processes and commands differ from what is expected."""
    problems = [] if pods else ["no pod of knft is running"]
    for pod in pods:
        name = f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        processes = [_command(cluster, pod), *_processes(pod["metadata"]["uid"])]
        different = [*differences(processes, expected), *_command_problems(cluster, pod)]
        problems += [f"{name}: {text}" for text in different]
        values = [f"{each.name}: {_text(each.values)}" for each in processes]
        print(f"e2e: {name}: {'; '.join(different or values)}", flush=True)
    return problems


def _text(values: Mapping[str, str]) -> str:
    return ", ".join(f"{field} {value}" for field, value in values.items())


def differences(processes: Sequence[PodProcess], expected: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the differences of a pod's processes, and the processes that it lacks."""
    for role in expected:
        if role not in [each.role for each in processes]:
            yield f"no {role} is running"
    for each in processes:
        for field, value in expected[each.role].items():
            if each.values[field] != value:
                yield f"{field} of {each.name} is {each.values[field]!r}, not {value!r}"


def _command(cluster: Cluster, pod: Mapping[str, Any]) -> PodProcess:
    """Return a process that knft has not started."""
    printed = cluster.kubectl("exec", "--namespace=kube-system", pod["metadata"]["name"], "--", *_PRINT)
    return PodProcess(_COMMAND, 0, read_values(*printed.split("\0")))


def _command_problems(cluster: Cluster, pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what commands in the pod print unexpectedly: knft is ready, and CoreDNS has pods on nodes."""
    command = ("exec", "--namespace=kube-system", pod["metadata"]["name"], "--", "knft")
    conclusion = cluster.kubectl(*command, "status").partition("\n")[0]
    if not conclusion.startswith("knft is ready"):
        yield f"knft status says {conclusion!r}"
    yield from explanation_problems(cluster.kubectl(*command, "explain", "kube-system/kube-dns", "--output=json"))


def explanation_problems(printed: str) -> Iterator[str]:
    """Yield warnings, and endpoints without pod or node, in what ``knft explain`` has printed about a Service."""
    found = json.loads(printed)
    endpoints = [each for port in found["ports"] for each in port["endpoints"]]
    yield from (f"knft explain warns: {warning}" for warning in found["warnings"])
    if not endpoints:
        yield "knft explain prints no endpoint"
    nameless = [each["endpoint"] for each in endpoints if not (each["pod"] and each["node"])]
    yield from (f"knft explain prints no pod or no node for {endpoint}" for endpoint in nameless)


def _processes(uid: str) -> Iterator[PodProcess]:
    """Yield the processes of knft."""
    for pid in sorted(processes_of_pod(uid)):
        folder = Path(f"/proc/{pid}")
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            texts = [(folder / name).read_text() for name in ("status", "mountinfo")]
        except OSError:  # It has ended.
            continue
        for word, role in _WORDS.items():
            if word in words:
                yield PodProcess(role, pid, read_values(*texts))


def read_values(status: str, mountinfo: str) -> Mapping[str, str]:
    """Return the values of a process's /proc/PID/status and mountinfo that are compared."""
    fields, root = parse_status(status), parse_mounts(mountinfo)["/"]
    return {name: fields[name] for name in _OWN if name != _ROOT} | {_ROOT: "ro" if root.is_read_only else "rw"}
