"""HTTP/1.1 messages: parses the head of a request, and encodes a response as bytes. No I/O.

The servers need little of HTTP: requests have no body, and each connection carries one request.
"""

import re
from email.utils import formatdate
from http import HTTPStatus

from msgspec import Struct

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rf"({_NAME}{{1,32}}) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
_FIELD = re.compile(rf"{_NAME}+:[\t\x20-\x7e\x80-\xff]*")
_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Request(Struct, frozen=True):
    """A request: its method, and its path without the query."""

    method: str
    path: str


class Response(Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = (NO_SNIFFING,)


class BadRequestError(Exception):
    """The received bytes are not a supported request; ``status`` is the HTTP status to respond with."""

    def __init__(self, status: HTTPStatus) -> None:
        """Respond with ``status``."""
        super().__init__(status.phrase)
        self.status = status


def head_length(received: bytes | bytearray, searched: int) -> int | None:
    """Return the length of the request's head, None while it is incomplete; skip the first ``searched`` bytes."""
    end = _END_OF_HEAD.search(received, max(0, searched - 3))
    return end.end() if end else None


def parse_request(head: bytes) -> Request:
    """Return the request with this head; raise BadRequestError if it is malformed or not HTTP/1."""
    first, *fields = head.decode("latin-1").strip("\r\n").replace("\r\n", "\n").split("\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None or not all(_FIELD.fullmatch(field) for field in fields):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    method, target, major, _minor = line.groups()
    if major != "1":
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    path = _ORIGIN.sub("", target, count=1) if _ORIGIN.match(target) else target
    return Request(method, path.partition("?")[0] or "/")


def status_response(status: HTTPStatus, *headers: tuple[str, str]) -> Response:
    """Return a plain-text response that contains only the status and its phrase."""
    return Response(status, f"{status.value} {status.phrase.lower()}\n".encode(), headers=(NO_SNIFFING, *headers))


def encode(response: Response, timestamp: float, *, with_body: bool) -> bytes:
    """Return the bytes of a response with the date ``timestamp`` (seconds since 1970); HEAD gets no body."""
    status = HTTPStatus(response.status)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{name}: {value}" for name, value in (("Content-Type", response.content_type), *response.headers)),
        f"Date: {formatdate(timestamp, usegmt=True)}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
    ]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (response.body if with_body else b"")
