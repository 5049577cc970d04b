"""What the small API server is asked, and what tests have it answer instead of what it would."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tests.apiserver.server import Handler

HUNG = 20.0
"""Seconds after which a test gives up on something that will never come."""

Form = Literal["list", "stream", "watch", "post", "other"]
_COLLECTIONS = {
    "/api/v1/services": "services",
    "/api/v1/nodes": "nodes",
    "/apis/discovery.k8s.io/v1/endpointslices": "endpointslices",
    "/apis/networking.k8s.io/v1/servicecidrs": "servicecidrs",
    "/apis/networking.k8s.io/v1beta1/servicecidrs": "servicecidrs",
}


class Asked(NamedTuple):
    """One request, as the server sees it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    when: float = 0.0

    @property
    def collection(self) -> str:
        return _COLLECTIONS.get(self.path, "")

    @property
    def form(self) -> Form:
        if self.method == "POST":
            return "post"
        if not self.collection:
            return "other"
        if self.query.get("watch") != "true":
            return "list"
        return "stream" if self.query.get("sendInitialEvents") == "true" else "watch"

    @property
    def what(self) -> str:
        """The form and the collection, such as ``watch services``."""
        return f"{self.form} {self.collection}".strip()


Answer = Callable[["Handler", Asked], bool]
"""What a test has done with a request; False lets the server go on as usual."""


def refuse(code: int, message: str = "", reason: str = "", **headers: str) -> Answer:
    """Answer with a Status."""

    def answer(handler: "Handler", _: Asked) -> bool:
        handler.send_status(code, message, reason, headers)
        return True

    return answer


def send_raw(data: bytes) -> Answer:
    """Answer with these bytes, head and all, and close."""

    def answer(handler: "Handler", _: Asked) -> bool:
        handler.wfile.write(data)
        handler.close_connection = True
        return True

    return answer


def stream_raw(*pieces: bytes, then: Literal["end", "reset", "close", "hang"] = "end") -> Answer:
    """Answer with a stream of these pieces, and end it in a way."""

    def answer(handler: "Handler", _: Asked) -> bool:
        handler.begin_stream()
        for piece in pieces:
            handler.chunk(piece)
        if then == "end":
            handler.end_stream()
        elif then == "reset":
            handler.reset()
        elif then == "hang":
            handler.server.released.wait(HUNG)
        handler.close_connection = True
        return True

    return answer


def hang(handler: "Handler", _: Asked) -> bool:
    """Answer nothing."""
    handler.server.released.wait(HUNG)
    handler.close_connection = True
    return True


def reset(handler: "Handler", _: Asked) -> bool:
    """Cut the connection instead of an answer."""
    handler.reset()
    return True


@contextmanager
def nobody_there() -> Iterator[str]:
    """Yield an address at which nobody listens, and nobody else comes to listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
