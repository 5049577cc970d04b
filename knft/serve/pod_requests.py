"""Answers requests for the pods of endpoints; another thread waits for the API server, so no other client does."""

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import unquote

import msgspec

from knft.control.messages import PODS_PATH
from knft.control.objects import PodPage
from knft.errors import ApiServerError
from knft.memory_errors import exit_if_out_of_memory
from knft.model.names import NamespacedName
from knft.serve.http_message import JSON, Response, status_response

ListPods = Callable[[NamespacedName, str], PodPage]
"""Requests a page of the pods of a Service's endpoints; the text is the token of the page before."""
# The names become parts of a URL and of a label selector.
_PATH = re.compile(rf"{PODS_PATH}([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([^/]*)")


MAX_WAITING = 4
"""How many requests may wait for the API server; those of clients that have disconnected count."""
ANSWER_SECONDS = 5.0
"""When a client gets the answer that the API server has not answered; commands wait for 10 s."""
_BUSY = "knft is waiting for the API server for other commands; run the command again"
_NO_ANSWER = f"the API server has not answered within {ANSWER_SECONDS:.0f} s"


class PodRequests:
    """Requests the pods of endpoints from the API server, one page at a time, and keeps none."""

    def __init__(self, list_pods: ListPods, has_endpoints: Callable[[NamespacedName], bool]) -> None:
        """``list_pods`` may block; it raises ApiServerError if the API server does not answer.

        ``has_endpoints`` tells whether a Service has EndpointSlices; of no others, pods are requested.
        """
        self._list_pods = list_pods
        self._has_endpoints = has_endpoints
        self._lock = threading.Lock()
        self._waiting = 0

    def respond(self, path: str) -> "Response | asyncio.Future[Response]":
        """Return the response to a request for ``path``, or its future; call this only in the thread of the loop."""
        found = _PATH.fullmatch(path)
        if found is None:
            return status_response(HTTPStatus.NOT_FOUND)
        service, token = NamespacedName(found[1], found[2]), unquote(found[3])
        if not self._has_endpoints(service):
            return _page(PodPage())
        if self._waiting >= MAX_WAITING:
            return _page(PodPage(problem=_BUSY))
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Response] = loop.create_future()
        loop.call_later(ANSWER_SECONDS, _set_result, response, _page(PodPage(problem=_NO_ANSWER)))

        def end(result: Response | Exception | None) -> None:
            self._waiting -= 1
            _set_result(response, result)

        def request() -> None:
            result = self._request(service, token, response.done)
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(end, result)

        # A daemon thread: it must not delay the end of the process.
        threading.Thread(target=request, name="endpoint-pods", daemon=True).start()
        self._waiting += 1
        return response

    def _request(
        self, service: NamespacedName, token: str, is_too_late: Callable[[], bool]
    ) -> Response | Exception | None:
        try:
            with self._lock:
                if is_too_late():
                    return None
                return _page(self._list_pods(service, token))
        except ApiServerError as error:
            return _page(PodPage(problem=str(error)))
        except Exception as error:  # noqa: BLE001 - raised in the thread of the loop
            exit_if_out_of_memory(error)
            return error


def _page(page: PodPage) -> Response:
    return Response(HTTPStatus.OK, msgspec.json.encode(page), JSON)


def _set_result(response: "asyncio.Future[Response]", result: Response | Exception | None) -> None:
    if response.done() or result is None:
        return  # The client has disconnected, or was told that there is no answer.
    if isinstance(result, Response):
        response.set_result(result)
    else:
        response.set_exception(result)
