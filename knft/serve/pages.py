"""The pages of the health server and the metrics server, by path.

docs/behaviour/health.md#proxy and docs/behaviour/configuration.md#http describe them.
"""

import json
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from msgspec import Struct

import knft
from knft.serve.http_message import JSON, Request, Response, status_response
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import Clock, Timestamp

MODE = "nftables"
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PageHandler = Callable[[], Response]


class Router:
    """Calls the handler of the requested path; allows GET and HEAD only."""

    def __init__(self, pages: Mapping[str, PageHandler]) -> None:
        """Serve ``pages``, by path."""
        self._pages = pages

    def __call__(self, request: Request) -> Response:
        """Return the requested page, or an error response."""
        page = self._pages.get(request.path)
        if page is None:
            return Response(HTTPStatus.NOT_FOUND, b"404 page not found\n")
        if request.method not in ("GET", "HEAD"):
            return status_response(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        return page()


def health_router(
    health: ProxyHealth, node_eligible: Callable[[], bool], count_probe: Callable[[str, int], None]
) -> Router:
    """Return the pages at healthzBindAddress; ``count_probe`` gets the name and the HTTP status of each probe."""

    def counted(name: str, response: Response) -> Response:
        count_probe(name, response.status)
        return response

    return Router(
        {
            "/healthz": lambda: counted("healthz", health.healthz(node_eligible=node_eligible())),
            "/livez": lambda: counted("livez", health.livez()),
            "/readyz": health.readyz,
        }
    )


class ProcessInfo(Struct, frozen=True):
    """The process: its start time, its configuration, and the flags of its command line."""

    started_at: Timestamp
    configuration: dict[str, Any]
    flags: Mapping[str, str]
    profiling: bool


class MetricsSource(Struct, frozen=True):
    """Functions that return metrics as text; ``count_ping`` records a request for ``/healthz``."""

    metrics: Callable[[], bytes]
    slis: Callable[[], bytes]
    count_ping: Callable[[], None]


def metrics_router(process: ProcessInfo, source: MetricsSource, clock: Clock) -> Router:
    """Return the pages at metricsBindAddress."""

    def healthz() -> Response:
        source.count_ping()
        return Response(HTTPStatus.OK, b"ok")

    configuration = json.dumps({"kubeproxy.config.k8s.io": process.configuration}, separators=(",", ":")).encode()
    pages: dict[str, PageHandler] = {
        "/healthz": healthz,
        "/proxyMode": lambda: Response(HTTPStatus.OK, MODE.encode()),
        "/metrics": lambda: Response(HTTPStatus.OK, source.metrics(), METRICS_CONTENT_TYPE),
        "/metrics/slis": lambda: Response(HTTPStatus.OK, source.slis(), METRICS_CONTENT_TYPE),
        "/configz": lambda: Response(HTTPStatus.OK, configuration, JSON),
        "/flagz": lambda: Response(HTTPStatus.OK, _flags_page(process).encode()),
        "/statusz": lambda: Response(HTTPStatus.OK, _status_page(process, sorted(pages), clock()).encode()),
    }
    if process.profiling:
        pages["/debug/stacks"] = lambda: Response(HTTPStatus.OK, _stacks_page().encode())
    return Router(pages)


_FORMAT_WARNING = "Warning: this page is for people; its format may change, so do not parse it.\n"


def _flags_page(process: ProcessInfo) -> str:
    lines = (f"{name}={value}\n" for name, value in sorted(process.flags.items()))
    return f"knft flags\n{_FORMAT_WARNING}\n{''.join(lines)}"


def _status_page(process: ProcessInfo, paths: list[str], now: Timestamp) -> str:
    started = datetime.fromtimestamp(int(process.started_at.unix_seconds), UTC)
    minutes, seconds = divmod(int(now.monotonic - process.started_at.monotonic), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"knft statusz\n{_FORMAT_WARNING}\n"
        f"Started: {started:%a %b %d %H:%M:%S UTC %Y}\n"
        f"Up: {hours} hr {minutes:02} min {seconds:02} sec\n"
        f"Python version: {sys.version.split()[0]}\n"
        f"Binary version: {knft.__version__}\n"
        f"Paths: {' '.join(paths)}\n"
    )


def _stacks_page() -> str:
    """Return the stack of every thread, like Go's page of goroutines."""
    frames = sys._current_frames()  # noqa: SLF001 - documented, despite its name
    threads = (thread for thread in threading.enumerate() if thread.ident in frames)
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"  # type: ignore[index]
        for thread in sorted(threads, key=lambda thread: thread.name)
    )
