"""``python -m tests.bench.served_cluster`` serves a cluster like an API server, over loopback, until it is killed.

It prints its URL and the bytes of all objects. Objects have managed fields and annotations, as real ones do. Each line
of its standard input is a number: so many EndpointSlices, one after the other, get another endpoint, and one chunk of
the watch reports all of them.
"""

import argparse
import gzip
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct
from msgspec.json import encode

from tests.bench.changes import steps
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
from tests.support.lab.namespace import Namespace

PAGE = 500
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
SERVE_SECONDS = 600.0
NODE_NAME, POD_CIDR = "node-1", "10.244.0.0/24"
_UID = "0b6c1e5a-7b1d-4c5e-9d0f-{:012d}"


class ServedCluster(Struct, frozen=True):
    """A process that serves a cluster at ``url``; ``size`` are the bytes of all objects."""

    process: "subprocess.Popen[str]"
    url: str
    size: int

    def replace_endpoints(self, count: int) -> None:
        """Replace an endpoint of ``count`` Services, all in one chunk of the watch."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()


@contextmanager
def served_cluster(namespace: Namespace, arguments: Sequence[str]) -> Iterator[ServedCluster]:
    """Serve a cluster in a namespace, whose loopback interface this brings up."""
    namespace.run(["ip", "link", "set", "lo", "up"])
    command = [sys.executable, "-m", "tests.bench.served_cluster", *arguments]
    with namespace.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url, size = process.stdout.readline().split()
            yield ServedCluster(process, url, int(size))
        finally:
            process.kill()


def service_json(spec: ServiceSpec) -> dict[str, Any]:
    """Return a Service as the API server writes it."""
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
            **_affinity(spec),
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    }


def _annotated(service: dict[str, Any], load_balancing: str) -> dict[str, Any]:
    if load_balancing:
        service["metadata"]["annotations"] = {"knft.dev/load-balancing": load_balancing}
    return service


def _affinity(spec: ServiceSpec) -> dict[str, Any]:
    if not spec.affinity_seconds:
        return {"sessionAffinity": "None"}
    config = {"clientIP": {"timeoutSeconds": spec.affinity_seconds}}
    return {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}


def slice_json(spec: ServiceSpec, version: int = 0) -> dict[str, Any]:
    """Return an EndpointSlice as the API server writes it; ``version`` counts its changes."""
    labels = {
        "app": spec.name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": spec.name,
    }
    meta = _meta(f"{spec.name}-x7k2p", spec.number + 100_000, labels)
    meta["generateName"] = f"{spec.name}-"
    meta["resourceVersion"] = str(2_000_000 + version)
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
        "nodeName": NODE_NAME if is_local(number) else f"node-{number % 500 + 2}",
        "zone": f"zone-{number % 3}",
    }


def node_json() -> dict[str, Any]:
    """Return the Node object of this node."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": NODE_NAME, "uid": _UID.format(0), "resourceVersion": "1"},
        "spec": {"podCIDR": POD_CIDR, "podCIDRs": [POD_CIDR]},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE_IP}]},
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
    """A connection to the API server, which sends a chunk for each event, or for changes that arrive together."""

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
            changes = self.server.changes if split.path == SLICES else queue.Queue()
            self._stream(items if "sendInitialEvents" in query else [], changes)

    def _page(self, items: list[bytes], first: int) -> None:
        rest = len(items) - first - PAGE
        continues = str(first + PAGE) if rest > 0 else ""
        metadata: dict[str, str] = {"resourceVersion": "2000000", "continue": continues}
        joined = b",".join(items[first : first + PAGE])
        body = b'{"kind":"List","metadata":%b,"items":[%b]}' % (encode(metadata), joined)
        zipped = self.server.zips
        self._send(200, gzip.compress(body, 1) if zipped else body, zipped=zipped)

    def _stream(self, items: list[bytes], changes: "queue.Queue[list[bytes]]") -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for item in items:
            self._chunk(b'{"type":"ADDED","object":%b}\n' % item)
        end = {"metadata": {"resourceVersion": "2000000", "annotations": {"k8s.io/initial-events-end": "true"}}}
        self._chunk(encode({"type": "BOOKMARK", "object": end}) + b"\n")
        self.wfile.flush()
        deadline = time.monotonic() + SERVE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                changed = changes.get(timeout=left)
                self._chunk(b"".join(b'{"type":"MODIFIED","object":%b}\n' % item for item in changed))
                self.wfile.flush()

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
    """The API server of one cluster; a watch of EndpointSlices sends what is put into ``changes``."""

    daemon_threads = True

    def __init__(self, cluster: Cluster, *, pages: bool, zips: bool, load_balancing: str) -> None:
        self.bodies: dict[str, list[bytes]] = {
            "/api/v1/services": [encode(_annotated(service_json(spec), load_balancing)) for spec in cluster],
            SLICES: [encode(slice_json(spec)) for spec in cluster],
            "/api/v1/nodes": [encode(node_json())],
        }
        self.pages, self.zips = pages, zips
        self.changes: queue.Queue[list[bytes]] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Handler)


def main() -> None:
    """Serve until this process is killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.served_cluster", description=__doc__)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    parser.add_argument("--affinity-seconds", type=int, default=0, help="timeout of session affinity")
    parser.add_argument("--load-balancing", default="", help="value of annotation knft.dev/load-balancing")
    parser.add_argument("--pages", action="store_true", help="the server has no streaming lists")
    parser.add_argument("--gzip", action="store_true", help="compress pages, as a real server does")
    options = parser.parse_args()
    shape = Shape("served", options.services, options.endpoints, affinity_seconds=options.affinity_seconds)
    cluster = Cluster(shape)
    server = _Server(cluster, pages=options.pages, zips=options.gzip, load_balancing=options.load_balancing)
    size = sum(len(item) for items in server.bodies.values() for item in items)
    print(f"http://127.0.0.1:{server.server_port} {size}", flush=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    version = 0
    for line in sys.stdin:
        changed = []
        for step in steps(cluster, "endpoint replaced", int(line), version):
            version += 1
            changed += [encode(slice_json(after, version)) for _, after in step]
        server.changes.put(changed)
    thread.join()


if __name__ == "__main__":
    main()
