"""``python -m tests.bench.from_bytes`` compares knft's first sync, from the API server's bytes, with the bare commit.

The bare commit is libnftables alone with the same transaction, rendered before.

A separate process serves a cluster like an API server, with managed fields, over loopback in a network namespace. The
values are the CPU time of knft's process and of libnftables' after the start, the CPU time of the bare commit of the
same cluster, and the resident memory of both processes afterwards. Both measurements alternate, because the machine
may have other load.
"""

import argparse
import gzip
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct
from msgspec.json import decode, encode

from tests.bench.cluster import (
    NAMESPACE,
    NODE_IP,
    PORT,
    PORT_NAME,
    TARGET_PORT,
    Cluster,
    ServiceSpec,
    Shape,
    endpoint_address,
    is_local,
)
from tests.bench.measure import peak_mib, resident_mib
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

TIME_LIMIT = 600.0
PAGE = 500
_UID = "0b6c1e5a-7b1d-4c5e-9d0f-{:012d}"


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
    parser.add_argument("--part", choices=["serve", "bare", "whole"], help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = Shape(f"{arguments.services}x{arguments.endpoints}", arguments.services, arguments.endpoints)
    match arguments.part:
        case "serve":
            _serve(shape, pages=arguments.pages, zips=arguments.gzip)
        case "bare":
            print(encode(_measure_bare_commit(shape)).decode())
        case "whole":
            print(encode(_measure_knft(arguments.url, profile=arguments.profile)).decode())
        case _:
            try:
                ensure_namespaces()
            except PrivilegeError as error:
                sys.exit(f"bench: {error}")
            _measure(shape, arguments.runs)


def _measure(shape: Shape, runs: int) -> None:
    command = [sys.executable, "-m", "tests.bench.from_bytes", *sys.argv[1:], "--part"]
    bare_commits, knft_runs, size = [], [], 0
    for _ in range(runs):
        bare_commits.append(_run_bare_commit(command))
        whole, size = _run_knft(command)
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


def _run_knft(command: list[str]) -> tuple[Figures, int]:
    with closing(Namespace.create("from-bytes")) as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        server = namespace.popen([*command, "serve"], stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            url, size = server.stdout.readline().split()
            return decode(_output(namespace, [*command, "whole", "--url", url]), type=Figures), int(size)
        finally:
            server.kill()
            server.communicate()


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


# The objects and answers of the API server.


def _service(spec: ServiceSpec) -> dict[str, Any]:
    meta = _meta(spec.name, spec.number, {"app": spec.name, "app.kubernetes.io/managed-by": "Helm"})
    applied = {"apiVersion": "v1", "kind": "Service", "metadata": {"annotations": {}, "name": spec.name}}
    meta["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    fields: dict[str, Any] = {
        f"f:{name}": {} for name in ("internalTrafficPolicy", "selector", "sessionAffinity", "type")
    }
    meta["managedFields"] = [_managed("kubectl-client-side-apply", {"f:spec": {"f:ports": {".": {}}} | fields})]
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": meta,
        "spec": {
            "ports": [{"name": PORT_NAME, "protocol": "TCP", "port": PORT, "targetPort": TARGET_PORT}],
            "selector": {"app": spec.name},
            "clusterIP": spec.cluster_ip,
            "clusterIPs": [spec.cluster_ip],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    }


def _slice(spec: ServiceSpec) -> dict[str, Any]:
    labels = {
        "app": spec.name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": spec.name,
    }
    meta = _meta(f"{spec.name}-x7k2p", spec.number + 100_000, labels)
    meta["generateName"] = f"{spec.name}-"
    meta["generation"] = 17
    meta["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-20T10:11:12Z"}
    owner = {"apiVersion": "v1", "kind": "Service", "name": spec.name, "uid": _UID.format(spec.number)}
    meta["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    fields: dict[str, Any] = {
        "f:addressType": {},
        "f:endpoints": {},
        "f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}},
    }
    meta["managedFields"] = [_managed("kube-controller-manager", fields)]
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": meta,
        "addressType": "IPv4",
        "endpoints": [_endpoint(spec, number) for number in spec.endpoints],
        "ports": [{"name": PORT_NAME, "port": TARGET_PORT, "protocol": "TCP"}],
    }


def _endpoint(spec: ServiceSpec, number: int) -> dict[str, Any]:
    pod = {
        "kind": "Pod",
        "namespace": NAMESPACE,
        "name": f"{spec.name}-7d9f8b6c5-{number:05d}",
        "uid": _UID.format(number),
    }
    return {
        "addresses": [endpoint_address(number)],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": pod,
        "nodeName": "node-1" if is_local(number) else f"node-{number % 500 + 2}",
        "zone": f"zone-{number % 3}",
    }


def _meta(name: str, number: int, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "uid": _UID.format(number),
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
    }


def _managed(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "f:annotations": {".": {}},
        "f:labels": {".": {}, "f:app": {}},
        "f:ownerReferences": {".": {}},
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-20T10:11:12Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata} | fields,
    }


class _Handler(BaseHTTPRequestHandler):
    """A connection to the API server, which sends a chunk for each event."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server: "_Server"

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        items = self.server.bodies.get(split.path)
        if items is None:
            self._send(404, b"{}")
        elif "watch" not in query:
            self._page(items, int(query.get("continue", "0")))
        elif self.server.pages and "sendInitialEvents" in query:
            self._send(422, b'{"message":"sendInitialEvents: Forbidden"}')
        else:
            self._stream(items if "sendInitialEvents" in query else [])

    def _page(self, items: list[bytes], first: int) -> None:
        rest = len(items) - first - PAGE
        continues = str(first + PAGE) if rest > 0 else ""
        metadata: dict[str, str] = {"resourceVersion": "2000000", "continue": continues}
        joined = b",".join(items[first : first + PAGE])
        body = b'{"kind":"List","metadata":%b,"items":[%b]}' % (encode(metadata), joined)
        zipped = self.server.zips
        self._send(200, gzip.compress(body, 1) if zipped else body, zipped=zipped)

    def _stream(self, items: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for item in items:
            self._chunk(b'{"type":"ADDED","object":%b}\n' % item)
        end = {"metadata": {"resourceVersion": "2000000", "annotations": {"k8s.io/initial-events-end": "true"}}}
        self._chunk(encode({"type": "BOOKMARK", "object": end}) + b"\n")
        self.wfile.flush()
        time.sleep(TIME_LIMIT)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, code: int, body: bytes, *, zipped: bool = False) -> None:
        self.send_response(code)
        if zipped:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    """The API server of one cluster."""

    daemon_threads = True

    def __init__(self, cluster: Cluster, *, pages: bool, zips: bool) -> None:
        self.bodies: dict[str, list[bytes]] = {
            "/api/v1/services": [encode(_service(spec)) for spec in cluster],
            "/apis/discovery.k8s.io/v1/endpointslices": [encode(_slice(spec)) for spec in cluster],
            "/api/v1/nodes": [],
        }
        self.pages, self.zips = pages, zips
        super().__init__(("127.0.0.1", 0), _Handler)


def _serve(shape: Shape, *, pages: bool, zips: bool) -> None:
    """Run the API server until this process is killed."""
    server = _Server(Cluster(shape), pages=pages, zips=zips)
    size = sum(len(item) for items in server.bodies.values() for item in items)
    print(f"http://127.0.0.1:{server.server_port} {size}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
