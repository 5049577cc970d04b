"""ApiClient: sends requests to the API server and returns the responses.

It retries a request only once, after a 401, with credentials that were read again. Callers handle all other errors.

    ApiClient       rate limit, requests and their errors; one for each API server
    Transport       the current configuration and credentials, and the connection pools for it
    ClientConfig    one configuration, read from a kubeconfig or a pod's ServiceAccount
    ClientSettings  the user's options: which kubeconfig to read, the rate limit
    Sockets         all open connections, so that a shutdown can close them
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
from knft.apiserver.error_text import describe_error, one_line
from knft.apiserver.in_cluster import PodEnvironment
from knft.apiserver.limits import TokenBucket
from knft.apiserver.response_body import ResponseBody
from knft.apiserver.server_url import without_credentials
from knft.apiserver.sockets import Sockets, Timeouts, TrackedConnection, shut_down
from knft.apiserver.transport import RequestTarget, Transport
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, ApiStatusError

UNAUTHORIZED = 401
_MAX_ERROR_BYTES = 64 << 10
"""How much of the body of an error response is read."""
MAX_RETRY_AFTER = 600.0
"""The longest Retry-After that is obeyed, in seconds."""

Query = Iterable[tuple[str, str]]
OnResponse = Callable[[str, str, str, float], None]
"""Called with the status as text (``<error>`` without a response), the method, the server's URL, and the seconds."""


def _ignore_response(_code: str, _method: str, _server: str, _seconds: float) -> None:
    """Count nothing."""


class _StatusDetails(Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None


class ApiStatus(Struct, frozen=True):
    """The fields of a ``v1`` Status that knft reads: the API's description of an error."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _StatusDetails | None = None


# Built once, at the import: msgspec 0.22 crashes if two threads decode a type of their own for the first time at once.
_STATUS = msgspec.json.Decoder(ApiStatus)


def decode_status(data: bytes) -> ApiStatus:
    """Return an encoded Status, an empty one if it cannot be decoded; its text is not trusted."""
    try:
        return _STATUS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ApiStatus()


class ApiClient:
    """A client of one API server; safe to use from any thread."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        on_response: OnResponse = _ignore_response,
        timeouts: Timeouts | None = None,
        in_cluster: PodEnvironment | None = None,
    ) -> None:
        """Read the configuration without sending anything; raise UsageError if it is invalid.

        ``on_response`` is called once for each request, in the thread that sent it.
        """
        self._on_response = on_response
        self._timeouts = timeouts or Timeouts()
        self._sockets = Sockets()
        self._transport = Transport(settings, self._sockets, self._timeouts, in_cluster)
        self._bucket = TokenBucket(settings.qps, settings.burst)
        self._bucket_lock = threading.Lock()

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._transport.server

    def request(self, method: str, path: str, query: Query = (), body: bytes | None = None) -> bytes:
        """Return the body of a response.

        Raises ApiStatusError for a status that is not success, and ApiServerError if there is no usable response.
        """
        response = self._send(method, path, query, body, {"Accept-Encoding": "gzip"})
        try:
            return response.read(decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self.as_api_server_error(error) from error
        finally:
            response.release_conn()

    def stream(self, path: str, query: Query = (), idle_timeout: float = 300.0) -> "Stream":
        """Return a response whose body is read as it arrives; raise what ``request`` raises.

        Reading raises ApiServerError if nothing arrives for ``idle_timeout`` seconds.
        """
        response = self._send("GET", path, query, None, {"Accept-Encoding": "identity"})
        return Stream(self, response, idle_timeout)

    def close(self) -> None:
        """End all requests at once, also those that other threads wait for, and refuse new ones."""
        self._sockets.close()

    def as_api_server_error(self, error: Exception) -> ApiServerError:
        """Return an error of urllib3 or of a socket as an ApiServerError that names the server."""
        return _api_server_error(self._transport.server, error)

    def _send(
        self, method: str, path: str, query: Query, body: bytes | None, headers: Mapping[str, str]
    ) -> "urllib3.BaseHTTPResponse":
        """Send a request; send it again with new credentials if the server refuses them."""
        path_and_query = f"{path}?{urlencode(list(query))}" if query else path
        target = self._next_target()
        try:
            return self._send_once(target, method, path_and_query, body, headers)
        except ApiStatusError as error:
            if error.status != UNAUTHORIZED:
                raise
        self._transport.reload(target)
        return self._send_once(self._next_target(), method, path_and_query, body, headers)

    def _next_target(self) -> RequestTarget:
        self._wait_for_rate_limit()
        return self._transport.request_target()

    def _send_once(
        self, target: RequestTarget, method: str, path_and_query: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "urllib3.BaseHTTPResponse":
        sent = {"User-Agent": f"knft/{__version__}", "Accept": "application/json", **headers, **target.headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        started = time.monotonic()
        try:
            response = target.pool_manager.request(
                method,
                target.server + path_and_query,
                body=body,
                headers=sent,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=self._timeouts.connect, read=self._timeouts.response),
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._on_response("<error>", method, target.server, time.monotonic() - started)
            if isinstance(error, ValueError) and not isinstance(error, urllib3.exceptions.HTTPError):
                # http.client quotes a header that it refuses, and so the token.
                server = without_credentials(target.server)
                msg = f"{server}: cannot send the request ({type(error).__name__}, not shown as it may be secret)"
                raise ApiServerError(msg) from None
            raise _api_server_error(target.server, error) from error
        self._on_response(str(response.status), method, target.server, time.monotonic() - started)
        if 200 <= response.status < 300:  # noqa: PLR2004 - HTTP's own
            return response
        raise _refused_error(response)

    def _wait_for_rate_limit(self) -> None:
        with self._bucket_lock:
            seconds = self._bucket.reserve(time.monotonic())
        if self._sockets.closed.wait(seconds) if seconds else self._sockets.closed.is_set():
            msg = "knft is shutting down"
            raise ApiServerError(msg)


class Stream:
    """A response whose body is still arriving; iterate over it for the bytes, in pieces as they arrive."""

    def __init__(self, client: ApiClient, response: "urllib3.BaseHTTPResponse", idle_timeout: float) -> None:
        """Read the body of a response whose head has arrived."""
        self._client = client
        self._response = response
        tracked: Any = response.connection
        self._tracked: TrackedConnection = tracked
        self.set_read_timeout(idle_timeout)

    def set_read_timeout(self, seconds: float) -> None:
        """From now on, fail if nothing arrives for ``seconds``."""
        if self._tracked.raw_socket is not None:
            self._tracked.raw_socket.settimeout(seconds)

    def __iter__(self) -> Iterator[bytes]:
        """Yield bytes until the server ends the response; raise ApiServerError if it breaks off or times out."""
        http_response = self._tracked.http_response
        if http_response is None or http_response.fp is None:
            return
        try:
            yield from ResponseBody(http_response.fp, self._response.headers)
        except (OSError, ValueError, EOFError) as error:
            raise self._client.as_api_server_error(error) from error

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut the connection down: a connection cannot be reused after part of a body was read."""
        if self._tracked.raw_socket is not None:
            shut_down(self._tracked.raw_socket)
        self._response.close()


def _api_server_error(server: str, error: Exception) -> ApiServerError:
    return ApiServerError(f"{without_credentials(server)}: {describe_error(error)}")


def _refused_error(response: "urllib3.BaseHTTPResponse") -> ApiStatusError:
    """Return an error response as an exception; its text is not trusted."""
    try:
        status = decode_status(response.read(_MAX_ERROR_BYTES, decode_content=True))
    except (urllib3.exceptions.HTTPError, OSError):
        status = ApiStatus()
    finally:
        response.close()
    code = response.status
    message = one_line(status.message or response.reason or "")
    return ApiStatusError(
        f"the server answered {code}{': ' + message if message else ''}",
        code,
        one_line(status.reason or ""),
        message,
        _retry_after(response.headers.get("Retry-After"), status),
    )


def _retry_after(header: str | None, status: ApiStatus) -> float:
    from_body = status.details.retry_after_seconds if status.details is not None else None
    seconds = float(header) if header is not None and header.isascii() and header.isdigit() else from_body or 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
