"""Connection: requests to the API server, and the bytes that come back.

Nothing is tried twice here, but for credentials that have just been replaced; what a failure leads to is decided by
who asked.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
import urllib3
from msgspec import Struct

from knft import __version__
from knft.apiserver.access import Access, Pod, Way
from knft.apiserver.address import without_credentials
from knft.apiserver.body import Body
from knft.apiserver.limits import TokenBucket
from knft.apiserver.said import because, in_one_line
from knft.apiserver.wire import Answering, Sockets, Timing, shut_down
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError, RefusedError

UNAUTHORIZED = 401
_MAX_REFUSAL = 64 << 10
"""How many bytes of a refusal are read."""
LONGEST_RETRY_AFTER = 600.0
"""Seconds that a server may ask to be left alone."""

Query = Iterable[tuple[str, str]]
Answered = Callable[[str, str, str, float], None]
"""Takes the status as text (``<error>`` where there was none), the method, the server, and how many seconds it took."""


def _nobody_counts(_code: str, _method: str, _server: str, _seconds: float) -> None:
    """Count nothing."""


class _Details(Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None


class Status(Struct, frozen=True):
    """The API's own word for something that went wrong: ``v1`` Status, the parts that are used."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


class Connection:
    """One API server, as one client of it; from any thread."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        timing: Timing | None = None,
        pod: Pod | None = None,
    ) -> None:
        """Read the configuration, without asking anybody; raise UsageError where it cannot be meant."""
        self._timing = timing or Timing()
        self._sockets = Sockets()
        self._access = Access(settings, self._sockets, self._timing, pod)
        self._bucket = TokenBucket(settings.qps, settings.burst)
        self._taking = threading.Lock()
        self.answered: Answered = _nobody_counts
        """Is told of each request, by whichever thread has made it."""

    @property
    def server(self) -> str:
        """The server's address."""
        return self._access.server

    def request(self, method: str, path: str, query: Query = (), body: bytes | None = None) -> bytes:
        """Return what the server answers; raise RefusedError where it says no, ClusterError where it says nothing."""
        response = self._ask(method, path, query, body, {"Accept-Encoding": "gzip"})
        try:
            return response.read(decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._broken(error) from error
        finally:
            response.release_conn()

    def stream(self, path: str, query: Query = (), quiet_seconds: float = 300.0) -> "Stream":
        """Return the bytes of an answer as they come; raises as ``request`` does, and where none comes for so long."""
        response = self._ask("GET", path, query, None, {"Accept-Encoding": "identity"})
        return Stream(self, response, quiet_seconds)

    def close(self) -> None:
        """End everything at once, also what others are waiting for; what is asked after that is refused."""
        self._sockets.close()

    def _ask(
        self, method: str, path: str, query: Query, body: bytes | None, headers: Mapping[str, str]
    ) -> "urllib3.BaseHTTPResponse":
        target = f"{path}?{urlencode(list(query))}" if query else path
        way = self._next_way()
        try:
            return self._ask_once(way, method, target, body, headers)
        except RefusedError as error:
            if error.status != UNAUTHORIZED:
                raise
        self._access.renew(way)
        return self._ask_once(self._next_way(), method, target, body, headers)

    def _next_way(self) -> Way:
        self._wait_turn()
        return self._access.way()

    def _ask_once(
        self, way: Way, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "urllib3.BaseHTTPResponse":
        sent = {"User-Agent": f"knft/{__version__}", "Accept": "application/json", **headers, **way.headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        started = time.monotonic()
        try:
            response = way.pools.request(
                method,
                way.server + target,
                body=body,
                headers=sent,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=self._timing.connect, read=self._timing.answer),
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self.answered("<error>", method, way.server, time.monotonic() - started)
            if isinstance(error, ValueError) and not isinstance(error, urllib3.exceptions.HTTPError):
                # http.client's words for a header that it does not take hold the header, and so the token.
                shown = without_credentials(way.server)
                msg = f"{shown}: the request cannot be sent ({type(error).__name__}, not shown: it may be secret)"
                raise ClusterError(msg) from None
            raise self._broken(error, way) from error
        self.answered(str(response.status), method, way.server, time.monotonic() - started)
        if 200 <= response.status < 300:  # noqa: PLR2004 - HTTP's own
            return response
        raise _refusal(response)

    def _wait_turn(self) -> None:
        with self._taking:
            seconds = self._bucket.take(time.monotonic())
        if self._sockets.closed.wait(seconds) if seconds else self._sockets.closed.is_set():
            msg = "knft is ending"
            raise ClusterError(msg)

    def _broken(self, error: Exception, way: Way | None = None) -> ClusterError:
        server = way.server if way is not None else self._access.server
        return ClusterError(f"{without_credentials(server)}: {because(error)}")


class Stream:
    """An answer that goes on; iterate over it for its bytes, in pieces as they come."""

    def __init__(self, connection: Connection, response: "urllib3.BaseHTTPResponse", quiet_seconds: float) -> None:
        """Take over a response whose head has come."""
        self._connection = connection
        self._response = response
        tracked: Any = response.connection
        self._tracked: Answering = tracked
        self.be_patient(quiet_seconds)

    def be_patient(self, quiet_seconds: float) -> None:
        """From now on, count the stream as hung when nothing comes for so many seconds."""
        if self._tracked.wire is not None:
            self._tracked.wire.settimeout(quiet_seconds)

    def __iter__(self) -> Iterator[bytes]:
        """Yield what comes, until the server ends it; raise ClusterError where it breaks off or hangs."""
        answer = self._tracked.answer
        if answer is None or answer.fp is None:
            return
        try:
            yield from Body(answer.fp, self._response.headers)
        except (OSError, ValueError, EOFError) as error:
            raise self._connection._broken(error) from error  # noqa: SLF001 - its own

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connection, which nothing else can use after a stream."""
        if self._tracked.wire is not None:
            shut_down(self._tracked.wire)
        self._response.close()


def _refusal(response: "urllib3.BaseHTTPResponse") -> RefusedError:
    """Return the error that an answer is; what it says is somebody else's words."""
    try:
        data = response.read(_MAX_REFUSAL, decode_content=True)
        status = msgspec.json.decode(data, type=Status)
    except (urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = Status()
    finally:
        response.close()
    code = response.status
    said = in_one_line(status.message or response.reason or "")
    return RefusedError(
        f"it answers {code}{': ' + said if said else ''}",
        code,
        in_one_line(status.reason or ""),
        said,
        _retry_after(response.headers.get("Retry-After"), status),
    )


def _retry_after(header: str | None, status: Status) -> float:
    listed = status.details.retry_after_seconds if status.details is not None else None
    seconds = float(header) if header is not None and header.isascii() and header.isdigit() else listed or 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
