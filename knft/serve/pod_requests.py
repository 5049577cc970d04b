"""Answers requests for the pods of endpoints: the API server is asked in another thread, so no other client waits."""

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
from knft.model.names import NamespacedName
from knft.serve.http_message import JSON, Response, status_response

ListPods = Callable[[NamespacedName, str], PodPage]
"""Requests a page of the pods of a Service's endpoints; the text is the token of the page before."""
# The names become parts of a URL and of a label selector.
_PATH = re.compile(rf"{PODS_PATH}([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([^/]*)")


class PodRequests:
    """Asks the API server for the pods of endpoints, one page at a time, and keeps none."""

    def __init__(self, list_pods: ListPods) -> None:
        """``list_pods`` may block; it raises ApiServerError if the API server does not answer."""
        self._list_pods = list_pods
        self._lock = threading.Lock()

    def respond(self, path: str) -> "Response | asyncio.Future[Response]":
        """Return the future response to a request for ``path``; call this only in the thread of an event loop."""
        found = _PATH.fullmatch(path)
        if found is None:
            return status_response(HTTPStatus.NOT_FOUND)
        namespace, name, token = found.groups()
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Response] = loop.create_future()

        def read() -> None:
            result = self._read(NamespacedName(namespace, name), unquote(token))
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(_set_result, response, result)

        # A daemon thread: it must not delay the end of the process.
        threading.Thread(target=read, name="endpoint-pods", daemon=True).start()
        return response

    def _read(self, service: NamespacedName, token: str) -> Response | Exception:
        try:
            with self._lock:
                page = self._list_pods(service, token)
        except ApiServerError as error:
            page = PodPage(problem=str(error))
        except Exception as error:  # noqa: BLE001 - raised in the thread of the loop
            return error
        return Response(HTTPStatus.OK, msgspec.json.encode(page), JSON)


def _set_result(response: "asyncio.Future[Response]", result: Response | Exception) -> None:
    if response.cancelled():
        return  # The client is gone.
    if isinstance(result, Response):
        response.set_result(result)
    else:
        response.set_exception(result)
