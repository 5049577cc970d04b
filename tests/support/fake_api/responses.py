"""Requests to the fake API server, and responses that tests queue instead of the usual ones."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tests.support.fake_api.server import Handler

TEST_TIMEOUT = 20.0
"""Seconds after which a test gives up."""

RequestKind = Literal["list", "stream", "watch", "post", "other"]
_NAMESPACE = re.compile("/namespaces/([^/]+)/")
_COLLECTIONS = {
    "/api/v1/services": "services",
    "/api/v1/nodes": "nodes",
    "/apis/discovery.k8s.io/v1/endpointslices": "endpointslices",
    "/apis/networking.k8s.io/v1/servicecidrs": "servicecidrs",
    "/apis/networking.k8s.io/v1beta1/servicecidrs": "servicecidrs",
}


class ReceivedRequest(NamedTuple):
    """One request to the server."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    received_at: float = 0.0

    @property
    def collection(self) -> str:
        return _COLLECTIONS.get(_NAMESPACE.sub("/", self.path), "")

    @property
    def namespace(self) -> str:
        """The namespace of the requested objects, "" for all."""
        found = _NAMESPACE.search(self.path)
        return found[1] if found else ""

    @property
    def kind(self) -> RequestKind:
        if self.method == "POST":
            return "post"
        if not self.collection:
            return "other"
        if self.query.get("watch") != "true":
            return "list"
        return "stream" if self.query.get("sendInitialEvents") == "true" else "watch"

    @property
    def label(self) -> str:
        """The kind and the collection, such as ``watch services``."""
        return f"{self.kind} {self.collection}".strip()


Responder = Callable[["Handler", ReceivedRequest], bool]
"""Responds to a request; returns False to let the server respond as usual."""


def respond_status(code: int, message: str = "", reason: str = "", **headers: str) -> Responder:
    """Respond with a Status."""

    def answer(handler: "Handler", _: ReceivedRequest) -> bool:
        handler.send_status(code, message, reason, headers)
        return True

    return answer


def respond_bytes(data: bytes) -> Responder:
    """Respond with these bytes, which include the head, and close.

    A header announces that: the client's next request would otherwise fail if it came before the close.
    """
    announced = data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)

    def answer(handler: "Handler", _: ReceivedRequest) -> bool:
        handler.wfile.write(announced)
        handler.close_connection = True
        return True

    return answer


def respond_stream(*pieces: bytes, ending: Literal["end", "reset", "close", "hang"] = "end") -> Responder:
    """Respond with a stream of these pieces, and end it as ``ending`` says."""

    def answer(handler: "Handler", _: ReceivedRequest) -> bool:
        handler.begin_stream()
        for piece in pieces:
            handler.chunk(piece)
        if ending == "end":
            handler.end_stream()
        elif ending == "reset":
            handler.reset()
        elif ending == "hang":
            handler.server.released.wait(TEST_TIMEOUT)
        handler.close_connection = True
        return True

    return answer


def never_respond(handler: "Handler", _: ReceivedRequest) -> bool:
    """Send no response."""
    handler.server.released.wait(TEST_TIMEOUT)
    handler.close_connection = True
    return True


def reset_connection(handler: "Handler", _: ReceivedRequest) -> bool:
    """Reset the connection instead of responding."""
    handler.reset()
    return True


@contextmanager
def unused_address() -> Iterator[str]:
    """Yield the URL of a port that is bound but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
