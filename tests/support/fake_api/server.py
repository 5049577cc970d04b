"""A fake API server with real sockets: lists, pages, watches and streaming lists; it fails on request."""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.fake_api.cluster import FakeCluster, Object
from tests.support.fake_api.responses import TEST_TIMEOUT, ReceivedRequest, RequestKind, Responder

BOOKMARK_SECONDS = 0.2


class FakeApiServer(ThreadingHTTPServer):
    """A server for one fake cluster; ``respond_next`` queues responses, ``requests`` has every request."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, cluster: FakeCluster | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.requests: list[ReceivedRequest] = []
        self.supports_streaming_lists = True
        self.streaming_list_error = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch"
        self.supports_field_selectors = True
        self.missing_paths: set[str] = set()
        self.required_bearer = ""
        """The bearer token that requests need, "" for none."""
        self.max_page_size = 0
        self.sends_bookmarks = True
        self.released = threading.Event()
        self._responders: list[tuple[str, int, Responder]] = []
        self._lock = threading.Condition()
        self._streams_ended = 0
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)
        self._tls = tls
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=[0.02], name="api-server", daemon=True)
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._lock:
            self._open.add(connection)
        return connection, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # In the connection's own thread: a client that does not trust the server must not block others.
        with suppress(OSError), self._tls.wrap_socket(request, server_side=True) as secure:
            Handler(secure, client_address, self)

    def handle_error(self, *_: Any) -> None:
        """Log nothing: clients close connections at any time."""

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def respond_next(self, label: str, responder: Responder, times: int = 1) -> None:
        """Use a responder for the next requests with a label such as ``watch services`` or ``list``; "" is for all."""
        with self._lock:
            self._responders.append((label, times, responder))

    def respond_normally(self) -> None:
        """Drop all queued responses."""
        with self._lock:
            self._responders.clear()

    def record(self, request: ReceivedRequest) -> Responder | None:
        """Record a request; return the responder that a test queued for it, if any."""
        with self._lock:
            self.requests.append(request)
            self._lock.notify_all()
            for index, (what, times, answer) in enumerate(self._responders):
                if request.label.startswith(what) or request.label.endswith(f" {what}"):
                    self._responders[index : index + 1] = [(what, times - 1, answer)] if times > 1 else []
                    return answer
        return None

    def kinds_of_requests(self, collection: str = "services") -> list[RequestKind]:
        """Return the kinds of all requests for a collection."""
        with self._lock:
            return [request.kind for request in self.requests if request.collection == collection]

    def requests_for(self, collection: str) -> list[ReceivedRequest]:
        """Return all requests for a collection."""
        with self._lock:
            return [request for request in self.requests if request.collection == collection]

    def wait_for_request(self, what: str, count: int = 1) -> ReceivedRequest:
        """Wait until so many requests with a label have arrived; return the last."""

        def found() -> list[ReceivedRequest]:
            return [request for request in self.requests if request.label == what]

        with self._lock:
            assert self._lock.wait_for(lambda: len(found()) >= count, TEST_TIMEOUT), (
                f"{what}: {len(found())} of {count}"
            )
            return found()[count - 1]

    def end_streams(self) -> None:
        """End every open stream without an error."""
        with self.cluster.changed:
            self._streams_ended += 1
            self.cluster.changed.notify_all()

    @property
    def streams_ended(self) -> int:
        """How often streams were ended."""
        return self._streams_ended

    def close(self) -> None:
        """Stop listening, and reset every connection."""
        self.released.set()
        self.end_streams()
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(TEST_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: FakeApiServer

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = ReceivedRequest(
            self.command, split.path, dict(parse_qsl(split.query)), dict(self.headers), body, time.monotonic()
        )
        demanded = self.server.record(request)
        if demanded is not None and demanded(self, request):
            return
        if (
            self.server.required_bearer
            and self.headers.get("Authorization", "").lower() != f"bearer {self.server.required_bearer}"
        ):
            self.send_status(401, "Unauthorized", "Unauthorized")
        elif request.path in self.server.missing_paths or request.kind == "other":
            self.send_status(404, "the server could not find the requested resource", "NotFound")
        elif request.kind == "post":
            self.send_body(201, b"{}")
        elif not self.server.supports_field_selectors and "clusterIP" in request.query.get("fieldSelector", ""):
            self.send_status(400, "field label not supported: spec.clusterIP", "BadRequest")
        elif request.kind == "list":
            self._list(request)
        elif request.kind == "stream" and not self.server.supports_streaming_lists:
            self.send_status(422, self.server.streaming_list_error, "Invalid")
        else:
            self._watch(request)

    def _list(self, request: ReceivedRequest) -> None:
        cluster = self.server.cluster
        with cluster.changed:
            version, skipped = cluster.version, 0
            if "continue" in request.query:
                version, skipped = map(int, request.query["continue"].split("-"))
                if version < cluster.compacted:
                    self.send_status(410, "The provided continue parameter is too old", "Expired")
                    return
            found = cluster.selected(request.collection, _selector(request))
        limit = int(request.query.get("limit") or 0)
        if self.server.max_page_size and limit:
            limit = min(limit, self.server.max_page_size)
        items = found[skipped : skipped + limit] if limit else found[skipped:]
        rest = len(found) - skipped - len(items)
        metadata: dict[str, str | int] = {"resourceVersion": str(version)}
        if rest > 0:
            metadata["continue"] = f"{version}-{skipped + len(items)}"
            if not request.query.keys() & {"labelSelector", "fieldSelector"}:
                metadata["remainingItemCount"] = rest
        typed = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
        self.send_body(
            200, json.dumps({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": typed}).encode()
        )

    def _watch(self, request: ReceivedRequest) -> None:
        cluster, wanted, cut = self.server.cluster, _selector(request), self.server.streams_ended
        text = request.query.get("resourceVersion", "")
        version = int(text or 0)
        if version and version < cluster.compacted:
            if request.kind == "watch":
                self.begin_stream()
                self.event("ERROR", _status(410, f"too old resource version: {version}", "Expired"))
                self.end_stream()
                return
            version = 0
        ends = time.monotonic() + float(request.query.get("timeoutSeconds") or 300)
        self.begin_stream()
        if request.kind == "stream":
            with cluster.changed:
                found, version = cluster.selected(request.collection, wanted), cluster.version
            for item in found:
                self.event("ADDED", item)
            self.bookmark(version, {"k8s.io/initial-events-end": "true"})
        self._send_changes(request, version, ends, cut)

    def _send_changes(self, request: ReceivedRequest, version: int, ends: float, cut: int) -> None:
        cluster, wanted = self.server.cluster, _selector(request)
        while self.server.streams_ended == cut and time.monotonic() < ends:
            with cluster.changed:
                if version < cluster.compacted:
                    self.event("ERROR", _status(410, "too old resource version", "Expired"))
                    break
                news = cluster.events_since(request.collection, version, wanted)
                latest = cluster.version
                if not news and latest == version:
                    cluster.changed.wait(BOOKMARK_SECONDS)
                    continue
            for _, kind, found in news:
                self.event(kind, found)
            version = latest
            if self.server.sends_bookmarks:
                self.bookmark(version)
        self.end_stream()

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def event(self, kind: str, found: Object) -> None:
        self.chunk(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> None:
        metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        self.event("BOOKMARK", {"kind": "Whatever", "apiVersion": "v1", "metadata": metadata, "spec": {}})

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def send_status(self, code: int, message: str, reason: str, headers: dict[str, str] | None = None) -> None:
        self.send_body(code, json.dumps(_status(code, message, reason)).encode(), headers)

    def send_body(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def _status(code: int, message: str, reason: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _selector(request: ReceivedRequest) -> Callable[[Object], bool]:
    """Return the selector of a request: its namespace, labels that must be absent or have a value, and one field."""
    parts = request.query.get("labelSelector", "").split(",")
    absent = [part[1:] for part in parts if part.startswith("!")]
    required = [(name, value) for name, is_equal, value in (part.partition("=") for part in parts) if is_equal]
    field = request.query.get("fieldSelector", "")

    def wanted(found: Object) -> bool:
        labels = found["metadata"].get("labels") or {}
        if any(label in labels for label in absent):
            return False
        if any(labels.get(name) != value for name, value in required):
            return False
        if request.namespace and found["metadata"].get("namespace") != request.namespace:
            return False
        if field == "spec.clusterIP!=None":
            return bool(found["spec"].get("clusterIP") != "None")
        if field.startswith("metadata.name="):
            return bool(found["metadata"]["name"] == field.partition("=")[2])
        return True

    return wanted
