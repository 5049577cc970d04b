"""``python -m tests.bench.large_sync`` measures the first sync of a large cluster and a restart that sends nothing.

A separate process serves the cluster like an API server. Another one runs knft twice on the same table, each time in a
process of its own: with an empty table, and with the table that the first one left. The values are CPU time and the
largest proportional set size (PSS) of knft's process and its worker process together. It fails if a value exceeds its
limit; the limits hold for 25 000 Services with 10 endpoints.
"""

import argparse
import logging
import os
import subprocess
import sys
import time
from contextlib import closing

from msgspec import Struct
from msgspec.json import decode, encode

from tests.bench.process_tree import pss_mib
from tests.bench.served_cluster import served_cluster
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

TIME_LIMIT = 900.0
SAMPLE_SECONDS = 0.02
BEFORE_SYNC, AFTER_SYNC = "before sync", "after sync"


class Figures(Struct, frozen=True):
    """What knft's process reports: seconds of CPU time of both processes in the sync, and the elements it sent."""

    cpu_s: float
    elements: int


class Measurement(Struct, frozen=True):
    """A sync: CPU time in seconds, PSS in MiB before the sync and at most, and the elements that were sent."""

    cpu_s: float
    before_mib: float
    peak_mib: float
    elements: int

    def __str__(self) -> str:
        """Return the values for people."""
        memory = f"{self.before_mib:.0f} MiB before, {self.peak_mib:.0f} MiB at most"
        return f"{self.cpu_s:.1f} s of CPU time, {self.elements} elements sent, {memory}"


class Limits(Struct, frozen=True):
    """The highest CPU time in seconds, and the largest PSS in MiB."""

    cpu_s: float
    peak_mib: float

    def problems(self, name: str, found: Measurement) -> list[str]:
        """Return what exceeds the limits."""
        pairs = ((found.cpu_s, self.cpu_s, "s of CPU time"), (found.peak_mib, self.peak_mib, "MiB"))
        return [f"{name}: {value:.1f} {unit}, allowed are {limit:g}" for value, limit, unit in pairs if value > limit]


FIRST_SYNC, RESTART = Limits(cpu_s=10.0, peak_mib=600.0), Limits(cpu_s=4.0, peak_mib=250.0)


def main() -> None:
    """Measure, or run as knft."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.large_sync", description=__doc__)
    parser.add_argument("--services", type=int, default=25_000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    parser.add_argument("--knft", metavar="URL", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.knft:
        _run_knft(arguments.knft)
        return
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    problems = _measure(arguments.services, arguments.endpoints)
    if problems:
        sys.exit("bench: " + "; ".join(problems))


def _measure(services: int, endpoints: int) -> list[str]:
    problems = []
    with (
        closing(Namespace.create("large-sync")) as namespace,
        served_cluster(namespace, ["--services", str(services), "--endpoints", str(endpoints)]) as cluster,
    ):
        for name, limits in (("first sync", FIRST_SYNC), ("restart", RESTART)):
            found = _measure_knft(namespace, cluster.url)
            print(f"{name} of {services} x {endpoints}: {found}", flush=True)
            problems += limits.problems(name, found)
            if name == "restart" and found.elements:
                problems.append(f"the restart sent {found.elements} elements")
    return problems


def _measure_knft(namespace: Namespace, url: str) -> Measurement:
    """Run knft's process, and sample the memory of it and of its worker process."""
    command = [sys.executable, "-m", "tests.bench.large_sync", "--knft", url]
    with namespace.popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        before = peak = 0.0
        output, deadline = "", time.monotonic() + TIME_LIMIT
        while process.poll() is None and AFTER_SYNC not in output:
            memory = pss_mib(process.pid)
            before = memory if BEFORE_SYNC not in output else before
            peak = max(peak, memory)
            output += _available(process.stdout.fileno())
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(SAMPLE_SECONDS)
        process.wait(TIME_LIMIT)
        output += _available(process.stdout.fileno())
    if process.returncode or AFTER_SYNC not in output:
        sys.exit(f"bench: knft ended with status {process.returncode}")
    figures = decode(output.partition(AFTER_SYNC)[2], type=Figures)
    return Measurement(figures.cpu_s, before, peak, figures.elements)


def _available(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1 << 16).decode()
    except BlockingIOError:
        return ""


def _run_knft(url: str) -> None:
    """List all objects, sync once, and print the figures."""
    import threading

    from knft.apiserver.api_client import ApiClient
    from knft.apiserver.source import ApiServerSource
    from knft.configuration.settings import ClientSettings
    from knft.kernel.addresses import local_addresses
    from knft.sync.assemble import live_daemon
    from knft.sync.garbage_collection import tune_garbage_collector
    from tests.bench.cluster import NODE_IP
    from tests.bench.timed_knft import CONFIG, ElementCounter, TimedLibrary

    logging.basicConfig(level=logging.WARNING)
    tune_garbage_collector()
    counter, worker = ElementCounter(), TimedLibrary()
    daemon = live_daemon(CONFIG, worker, (counter,))
    daemon.update_local_addresses(local_addresses() | {NODE_IP})
    source = ApiServerSource(ApiClient(ClientSettings(server=url)), CONFIG.node_name, daemon.handle)
    stop = threading.Event()
    source.start(stop)
    if not source.wait_all_listed(TIME_LIMIT):
        sys.exit(f"bench: not synced: {source.problem('services')}")
    print(BEFORE_SYNC, flush=True)
    before = time.process_time() + worker.cpu_seconds()
    succeeded = daemon.sync()
    cpu = time.process_time() + worker.cpu_seconds() - before
    print(AFTER_SYNC + encode(Figures(cpu, counter.elements)).decode(), flush=True)
    os._exit(0 if succeeded else 1)  # Without waiting for the threads of the watches.


if __name__ == "__main__":
    main()
