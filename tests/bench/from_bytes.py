"""``python -m tests.bench.from_bytes`` compares knft's first sync, from the API server's bytes, with the bare commit.

The bare commit is libnftables alone with the same transaction, rendered before.

A separate process serves a cluster like an API server, with managed fields, over loopback in a network namespace. The
values are the CPU time of knft's process and of libnftables' after the start, the CPU time of the bare commit of the
same cluster, and the resident memory of both processes afterwards. Both measurements alternate, because the machine
may have other load.
"""

import argparse
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec import Struct
from msgspec.json import decode, encode

from tests.bench.cluster import NODE_IP, Cluster, Shape
from tests.bench.measure import peak_mib, resident_mib
from tests.bench.served_cluster import served_cluster
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

TIME_LIMIT = 600.0


class Figures(Struct):
    """The measurements of one process: seconds of CPU time, and MiB."""

    cpu_s: float
    decoded_cpu_s: float = 0.0
    """The part until all objects were passed to the daemon."""
    libnftables_cpu_s: float = 0.0
    """The part of libnftables' process."""
    wall_s: float = 0.0
    resident_mib: float = 0.0
    peak_mib: float = 0.0


def main() -> None:
    """Measure, or run as one of the measured processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.from_bytes", description=__doc__)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    parser.add_argument("--pages", action="store_true", help="the server has no streaming lists")
    parser.add_argument("--gzip", action="store_true", help="compress pages, as a real server does")
    parser.add_argument("--runs", type=int, default=3, help="alternating runs of each; the fastest counts")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--part", choices=["bare", "whole"], help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = Shape(f"{arguments.services}x{arguments.endpoints}", arguments.services, arguments.endpoints)
    match arguments.part:
        case "bare":
            print(encode(_measure_bare_commit(shape)).decode())
        case "whole":
            print(encode(_measure_knft(arguments.url, profile=arguments.profile)).decode())
        case _:
            try:
                ensure_namespaces()
            except PrivilegeError as error:
                sys.exit(f"bench: {error}")
            flags = [name for name in ("--pages", "--gzip") if name in sys.argv]
            size = ["--services", str(shape.services), "--endpoints", str(shape.endpoints)]
            _measure(shape, arguments.runs, [*size, *flags])


def _measure(shape: Shape, runs: int, server_arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.bench.from_bytes", *sys.argv[1:], "--part"]
    bare_commits, knft_runs, size = [], [], 0
    for _ in range(runs):
        bare_commits.append(_run_bare_commit(command))
        whole, size = _run_knft(command, server_arguments)
        knft_runs.append(whole)
    bare, whole = min(bare_commits, key=lambda item: item.cpu_s), min(knft_runs, key=lambda item: item.cpu_s)
    print(f"{shape.name}, {size / 2**20:.0f} MiB of JSON, the best of {runs}")
    print(f"bare commit: {bare.cpu_s:.2f} s of CPU time")
    print(f"from API bytes to commit: {whole.cpu_s:.2f} s, {whole.cpu_s / bare.cpu_s:.2f} times the commit")
    print(f"  decoding until the trackers {whole.decoded_cpu_s:.2f} s, in libnftables {whole.libnftables_cpu_s:.2f} s")
    print(f"  by the clock {whole.wall_s:.2f} s")
    settled = [item.resident_mib for item in knft_runs]
    print(f"settled: {max(settled):.0f} MiB; peak before {max(item.peak_mib for item in knft_runs):.0f}")


def _run_bare_commit(command: list[str]) -> Figures:
    with closing(Namespace.create("bare")) as namespace:
        return decode(_output(namespace, [*command, "bare"]), type=Figures)


def _run_knft(command: list[str], server_arguments: list[str]) -> tuple[Figures, int]:
    with closing(Namespace.create("from-bytes")) as namespace, served_cluster(namespace, server_arguments) as cluster:
        figures = _output(namespace, [*command, "whole", "--url", cluster.url])
        return decode(figures, type=Figures), cluster.size


def _output(namespace: Namespace, command: list[str]) -> str:
    process = namespace.popen(command, stdout=subprocess.PIPE)
    limit = threading.Timer(TIME_LIMIT, process.kill)
    limit.start()
    try:
        output, _ = process.communicate()
    finally:
        limit.cancel()
    if process.returncode:
        sys.exit(f"bench: {command[-1]} ended with status {process.returncode}")
    return output.splitlines()[-1]


def _measure_bare_commit(shape: Shape) -> Figures:
    from knft.kernel.libnftables import Library
    from tests.bench.manifests import first_changes
    from tests.bench.timed_knft import bare_commit

    declared, transaction = bare_commit(list(first_changes(Cluster(shape))))
    library = Library()
    before = time.process_time()
    library.run(declared)
    library.run(transaction)
    return Figures(time.process_time() - before)


def _measure_knft(url: str, *, profile: bool) -> Figures:
    """Run knft: list, watch, and sync once."""
    from knft.apiserver.api_client import ApiClient
    from knft.apiserver.source import ApiServerSource
    from knft.configuration.settings import ClientSettings
    from knft.sync.assemble import live_daemon
    from knft.sync.garbage_collection import tune_garbage_collector
    from tests.bench.timed_knft import CONFIG, TimedLibrary

    logging.basicConfig(level=logging.INFO)
    tune_garbage_collector()
    library = TimedLibrary()
    daemon = live_daemon(CONFIG, library)
    daemon.update_local_addresses(frozenset({NODE_IP}))
    library.run("list tables")
    connection = ApiClient(ClientSettings(server=url))
    source = ApiServerSource(connection, CONFIG.node_name, daemon.handle)
    stop = threading.Event()
    with _profiled(profile):
        cpu, started, worker = time.process_time(), time.perf_counter(), library.cpu_seconds()
        source.start(stop)
        if not source.wait_all_listed(TIME_LIMIT):
            sys.exit(f"bench: not synced: {source.problem('services')}")
        decoded = time.process_time() - cpu
        if not daemon.sync():
            sys.exit("bench: the sync failed")
        figures = Figures(
            cpu_s=time.process_time() - cpu + library.cpu_seconds() - worker,
            decoded_cpu_s=decoded,
            libnftables_cpu_s=library.cpu_seconds() - worker,
            wall_s=time.perf_counter() - started,
            peak_mib=peak_mib(),
        )
    time.sleep(2)
    figures.resident_mib = resident_mib() + library.resident_mib()
    stop.set()
    source.join(10)
    return figures


@contextmanager
def _profiled(arguments: bool) -> Iterator[None]:  # noqa: FBT001 - a flag of the command line
    """Profile each thread that starts during the block, and print the profiles."""
    if not arguments:
        yield
        return
    import cProfile
    import pstats

    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile(time.thread_time)
        profiles.append(profile)
        profile.runcall(run, thread)

    threading.Thread.run = profiled  # type: ignore[method-assign,assignment]
    yield
    for profile in profiles:
        profile.create_stats()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
