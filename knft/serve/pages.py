"""Pages: what is served at the two bind addresses, by path (behaviour.md G.1, I.8)."""

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
from knft.serve.health import ProxyHealth
from knft.serve.message import JSON, Request, Response, sentence
from knft.serve.moment import Clock, Moment

MODE = "nftables"
METRICS = "text/plain; version=0.0.4; charset=utf-8"

Page = Callable[[], Response]


class Site:
    """Pages by path; each is there for GET and HEAD."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        """Serve ``pages`` and nothing else."""
        self._pages = pages

    def __call__(self, request: Request) -> Response:
        """Return the page that a request asks for, or why there is none."""
        page = self._pages.get(request.path)
        if page is None:
            return Response(HTTPStatus.NOT_FOUND, b"404 page not found\n")
        if request.method not in ("GET", "HEAD"):
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        return page()


def health_site(health: ProxyHealth, node_eligible: Callable[[], bool], count: Callable[[str, int], None]) -> Site:
    """Return what is served at healthzBindAddress; ``count`` is told each probe's name and the status it gets."""

    def counted(name: str, response: Response) -> Response:
        count(name, response.status)
        return response

    return Site(
        {
            "/healthz": lambda: counted("healthz", health.healthz(node_eligible=node_eligible())),
            "/livez": lambda: counted("livez", health.livez()),
        }
    )


class About(Struct, frozen=True):
    """What a process says of itself: when it was started, its configuration, and how it was called."""

    started: Moment
    document: dict[str, Any]
    flags: Mapping[str, str]
    profiling: bool


class Scrapes(Struct, frozen=True):
    """Where metrics are to be had: each returns them as text. ``ping`` counts that somebody has asked for health."""

    metrics: Callable[[], bytes]
    indicators: Callable[[], bytes]
    ping: Callable[[], None]


def metrics_site(about: About, scrapes: Scrapes, clock: Clock) -> Site:
    """Return what is served at metricsBindAddress."""

    def healthz() -> Response:
        scrapes.ping()
        return Response(HTTPStatus.OK, b"ok")

    configuration = json.dumps({"kubeproxy.config.k8s.io": about.document}, separators=(",", ":")).encode()
    pages: dict[str, Page] = {
        "/healthz": healthz,
        "/proxyMode": lambda: Response(HTTPStatus.OK, MODE.encode()),
        "/metrics": lambda: Response(HTTPStatus.OK, scrapes.metrics(), METRICS),
        "/metrics/slis": lambda: Response(HTTPStatus.OK, scrapes.indicators(), METRICS),
        "/configz": lambda: Response(HTTPStatus.OK, configuration, JSON),
        "/flagz": lambda: Response(HTTPStatus.OK, _flags(about).encode()),
        "/statusz": lambda: Response(HTTPStatus.OK, _status(about, sorted(pages), clock()).encode()),
    }
    if about.profiling:
        pages["/debug/stacks"] = lambda: Response(HTTPStatus.OK, _stacks().encode())
    return Site(pages)


_FOR_PEOPLE = "Warning: this page is for people; its form may change at any time, so let no program read it.\n"


def _flags(about: About) -> str:
    lines = (f"{name}={value}\n" for name, value in sorted(about.flags.items()))
    return f"knft flags\n{_FOR_PEOPLE}\n{''.join(lines)}"


def _status(about: About, paths: list[str], now: Moment) -> str:
    started = datetime.fromtimestamp(int(about.started.timestamp), UTC)
    minutes, seconds = divmod(int(now.steady - about.started.steady), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"knft statusz\n{_FOR_PEOPLE}\n"
        f"Started: {started:%a %b %d %H:%M:%S UTC %Y}\n"
        f"Up: {hours} hr {minutes:02} min {seconds:02} sec\n"
        f"Python version: {sys.version.split()[0]}\n"
        f"Binary version: {knft.__version__}\n"
        f"Paths: {' '.join(paths)}\n"
    )


def _stacks() -> str:
    """Return what every thread is doing, which is what Go's page of goroutines is asked for."""
    frames = sys._current_frames()  # noqa: SLF001 - documented, and there is no other way
    threads = (thread for thread in threading.enumerate() if thread.ident in frames)
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"  # type: ignore[index]
        for thread in sorted(threads, key=lambda thread: thread.name)
    )
