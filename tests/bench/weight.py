"""``python -m tests.bench.weight`` measures what the daemon costs: CPU time of a start and of changes, and memory.

It runs ``knft run`` with a process that serves a cluster like an API server; in turn, if there are several programs,
such as an older version. CPU time and memory are those of all of the daemon's processes. A change is measured from the
time when the server sends its event until nothing has happened for a while, without what the daemon uses in the same
time when nothing changes. It is also measured until the kernel reports the commit. knft reads a configuration file, as
in the DaemonSet. The minimum interval between two syncs is 0. Memory is the proportional set size: pages that other
programs use too, such as those of the interpreter, count in part.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

import urllib3
from msgspec import Struct

from tests.bench.cluster import AFFINITY_SECONDS
from tests.bench.process_tree import cpu_seconds, descendants, is_busy, pss_mib, resident_mib, stopped
from tests.bench.served_cluster import NODE_NAME, ServedCluster, served_cluster
from tests.bench.task_clocks import TaskClocks, require_task_clocks
from tests.cluster.churn.commit_listener import open_notifications
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

METRICS = "127.0.0.1:10249"
SYNCED = re.compile(r"IPv6: full sync of ")
TIME_LIMIT = 600.0
SETTLE_SECONDS, CHANGE_SECONDS, BULK_SECONDS = 3.0, 0.25, 1.0
BULK = 200
STEADY_RATE = 10
POLL_SECONDS, SAMPLE_SECONDS = 0.002, 0.02
LARGEST_MESSAGE = 1 << 20
_CONFIGURATION = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
conntrack: {{maxPerCore: 0}}
metricsBindAddress: {metrics}
"""
_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{}}}}]
current-context: c
"""


class Weight(Struct, frozen=True):
    """What the daemon needs: seconds of CPU until its rules are in force, MiB of memory, ms of CPU for each change."""

    start_cpu_s: float
    start_s: float
    peak_mib: float
    """The largest of the samples of memory during the start; 0 if there are none."""
    settled_mib: float
    changed_mib: float
    change_cpu_ms: float
    to_commit_cpu_ms: float
    """The part of a change until the kernel has reported the commit, including what is used at rest in that time."""
    bulk_cpu_ms: float
    idle_cpu_ms: float
    """In a second without changes."""
    resident_mib: float
    """After all changes; pages that the daemon's processes share count once."""
    steady_idle_millicores: float
    """Mean CPU of many seconds without changes."""
    steady_millicores: float
    """Mean CPU of many seconds with ten changes a second."""


class MeasuredCluster(Struct, frozen=True):
    """The Services that the daemon serves; ``load_balancing`` is the value of their annotation, or empty."""

    services: int
    endpoints: int = 10
    sticky: bool = False
    load_balancing: str = ""


class WeightPlan(Struct, frozen=True):
    """Runs of each program, single changes of each run, and seconds at rest and with ten changes a second."""

    runs: int = 3
    changes: int = 40
    seconds: float = 10.0
    samples_memory: bool = False
    """During the start, for ``peak_mib``, which is 0 otherwise. Each sample makes the daemon wait; CPU time grows."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.weight", description=__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    parser.add_argument("--sticky", action="store_true", help="the Services have session affinity")
    parser.add_argument("--load-balancing", default="", help="annotation of the Services: maglev or source-hash")
    parser.add_argument("--changes", type=int, default=40, help="number of single changes")
    parser.add_argument("--seconds", type=float, default=10.0, help="at rest, and as long with ten changes a second")
    parser.add_argument("--runs", type=int, default=3, help="runs of each program, in turn; the median counts")
    parser.add_argument("--programs", nargs="+", default=[str(Path(sys.executable).with_name("knft"))])
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
        require_task_clocks()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    print("load:", *os.getloadavg())
    print(
        "| Services | program |",
        " | ".join(Weight.__struct_fields__),
        "|\n",
        "| --- " * (2 + len(Weight.__struct_fields__)),
        "|",
        sep="",
    )
    for services in arguments.services:
        cluster = MeasuredCluster(services, arguments.endpoints, arguments.sticky, arguments.load_balancing)
        plan = WeightPlan(arguments.runs, arguments.changes, arguments.seconds)
        for program, weight in median_weights(arguments.programs, cluster, plan).items():
            values = (getattr(weight, name) for name in Weight.__struct_fields__)
            print(f"| {services} | {program} |", " | ".join(f"{value:.3g}" for value in values), "|", flush=True)
    print("load:", *os.getloadavg())


def median_weights(programs: Sequence[str], cluster: MeasuredCluster, plan: WeightPlan) -> dict[str, Weight]:
    """Run the programs in turn, and return the median of each value of each program."""
    return {
        program: Weight(*(median(getattr(each, name) for each in weights) for name in Weight.__struct_fields__))
        for program, weights in measure_in_turn(programs, cluster, plan).items()
    }


def measure_in_turn(programs: Sequence[str], cluster: MeasuredCluster, plan: WeightPlan) -> dict[str, list[Weight]]:
    """Run the programs in turn, and return the values of each run of each program."""
    found: dict[str, list[Weight]] = {program: [] for program in programs}
    for _ in range(plan.runs):
        for program, weights in found.items():
            weights.append(_measure(program, cluster, plan))
    return found


def _measure(program: str, measured: MeasuredCluster, plan: WeightPlan) -> Weight:
    flags = ["--services", str(measured.services), "--endpoints", str(measured.endpoints)]
    flags += ["--affinity-seconds", str(AFFINITY_SECONDS)] if measured.sticky else []
    flags += ["--load-balancing", measured.load_balancing] if measured.load_balancing else []
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Namespace.create("weight")) as namespace,
        served_cluster(namespace, flags) as cluster,
    ):
        kubeconfig, log = Path(folder, "kubeconfig"), Path(folder, "log")
        kubeconfig.write_text(_KUBECONFIG.format(url=cluster.url))
        configuration = Path(folder, "config.yaml")
        configuration.write_text(_CONFIGURATION.format(kubeconfig=kubeconfig, metrics=METRICS))
        command = [program, "run", f"--config={configuration}", f"--hostname-override={NODE_NAME}"]
        command += ["--min-sync-period=0"]
        with log.open("w") as output:
            started = time.monotonic()
            process = namespace.popen(command, stderr=output, env=_environment())
        try:
            peak = _wait_for_sync(process, log, samples_memory=plan.samples_memory)
            seconds = time.monotonic() - started
            with stopped(tuple(descendants(process.pid))[::-1]):
                start = (cpu_seconds(process.pid), seconds, peak)
            return _measure_running(process.pid, start, namespace, cluster, min(BULK, measured.services), plan)
        finally:
            process.terminate()
            process.wait(TIME_LIMIT)


def _measure_running(  # noqa: PLR0917
    pid: int,
    start: tuple[float, float, float],
    namespace: Namespace,
    cluster: ServedCluster,
    together: int,
    plan: WeightPlan,
) -> Weight:
    time.sleep(SETTLE_SECONDS)
    settled = pss_mib(pid)
    idle = median(_cpu_of(pid, lambda: None, CHANGE_SECONDS) for _ in range(12)) / CHANGE_SECONDS
    before = _sync_count(namespace)
    single = [_cpu_of(pid, lambda: cluster.replace_endpoints(1), CHANGE_SECONDS) for _ in range(plan.changes)]
    if _sync_count(namespace) - before < plan.changes:
        sys.exit(f"bench: knft made {_sync_count(namespace) - before} syncs for {plan.changes} changes")
    to_commit = _cpu_until_commit(pid, namespace, cluster, plan.changes)
    before = _sync_count(namespace)
    bulk = [_cpu_of(pid, lambda: cluster.replace_endpoints(together), BULK_SECONDS) for _ in range(5)]
    if _sync_count(namespace) == before:
        sys.exit("bench: knft did not sync the changes that arrived together")
    return Weight(
        *start,
        settled,
        pss_mib(pid),
        (median(single) - idle * CHANGE_SECONDS) * 1e3,
        median(to_commit) * 1e3,
        (median(bulk) - idle * BULK_SECONDS) / together * 1e3,
        idle * 1e3,
        resident_mib(pid),
        _millicores(pid, lambda: None, plan.seconds),
        _millicores(pid, lambda: cluster.replace_endpoints(1), plan.seconds),
    )


def _cpu_until_commit(pid: int, namespace: Namespace, cluster: ServedCluster, changes: int) -> list[float]:
    """Return the CPU time of single changes from the event until the benchmark has noticed the kernel's commit."""
    found = []
    # The worker process first, which has just committed.
    processes = tuple(descendants(pid))[::-1]
    with namespace.entered():
        kernel = open_notifications()
    with kernel, TaskClocks(processes) as clocks:
        for _ in range(changes):
            _discard(kernel)
            before = clocks.seconds()
            cluster.replace_endpoints(1)
            kernel.settimeout(TIME_LIMIT)
            kernel.recv(LARGEST_MESSAGE)
            found.append(clocks.seconds() - before)
            time.sleep(CHANGE_SECONDS)
    return found


def _discard(kernel: socket.socket) -> None:
    """Read the notifications that have arrived."""
    kernel.settimeout(0)
    with suppress(BlockingIOError):
        while kernel.recv(LARGEST_MESSAGE):
            pass


def _millicores(pid: int, action: Callable[[], None], seconds: float) -> float:
    """Return the mean CPU, in thousandths of a core, while the action is done ten times a second."""
    before, begin = cpu_seconds(pid), time.monotonic()
    for number in range(round(seconds * STEADY_RATE)):
        time.sleep(max(0.0, begin + number / STEADY_RATE - time.monotonic()))
        action()
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    return (cpu_seconds(pid) - before) / (time.monotonic() - begin) * 1e3


def _cpu_of(pid: int, action: Callable[[], None], seconds: float) -> float:
    before = cpu_seconds(pid)
    action()
    time.sleep(seconds)
    while is_busy(pid):
        time.sleep(POLL_SECONDS)
    return cpu_seconds(pid) - before


def _sync_count(namespace: Namespace) -> int:
    """Return how many partial syncs of IPv4 have ended."""
    with namespace.entered():
        text = urllib3.request("GET", f"http://{METRICS}/metrics").data.decode()
    name = "kubeproxy_sync_partial_proxy_rules_duration_seconds_count"
    found = re.search(rf'^{name}{{ip_family="IPv4"}} (\S+)', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _environment() -> dict[str, str]:
    """Return the environment without the prohibition of bytecode files, which cost each start 0.1 s."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _wait_for_sync(process: "subprocess.Popen[str]", log: Path, *, samples_memory: bool) -> float:
    """Wait for the first sync, and return the largest PSS until then in MiB, 0 without samples."""
    started, sampled, largest = time.monotonic(), 0.0, 0.0
    while not SYNCED.search(log.read_text()):
        if (now := time.monotonic()) > sampled + SAMPLE_SECONDS and samples_memory:
            sampled, largest = now, max(largest, pss_mib(process.pid))
        if process.poll() is not None or now > started + TIME_LIMIT:
            sys.exit(f"bench: knft has not synced; its log:\n{log.read_text()}")
        time.sleep(POLL_SECONDS)
    return largest


if __name__ == "__main__":
    main()
