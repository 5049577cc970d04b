"""Lists the objects of a cluster once, with the source that ``knft run`` watches."""

import threading
import time
from collections.abc import Iterable

from knft.apiserver.api_client import ApiClient
from knft.apiserver.source import ApiServerSource
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange

LIST_SECONDS = 120.0
"""How long to wait for all objects."""
PROBLEM_SECONDS = 10.0
"""How long to wait while a request fails again and again."""
_POLL_SECONDS = 0.02
_END_SECONDS = 1.0


class _Objects:
    """The current objects; several threads change it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[tuple[type, NamespacedName], KubeObject] = {}

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        """Apply changes."""
        with self._lock:
            for change in changes:
                if change.previous is not None:
                    self._objects.pop((type(change.previous), change.previous.key), None)
                if change.current is not None:
                    self._objects[type(change.current), change.current.key] = change.current

    def additions(self) -> tuple[ObjectChange, ...]:
        """Return all objects as additions."""
        with self._lock:
            return tuple(ObjectChange(None, item) for item in self._objects.values())


def list_objects(
    settings: ClientSettings,
    node_name: str,
    *,
    list_seconds: float = LIST_SECONDS,
    problem_seconds: float = PROBLEM_SECONDS,
) -> tuple[ObjectChange, ...]:
    """Return the Services, EndpointSlices and ServiceCIDRs, and the Node of that name, as additions.

    Raises UsageError for an unusable kubeconfig, and ApiServerError if the server does not answer in time.
    """
    objects, stop = _Objects(), threading.Event()
    source = ApiServerSource(ApiClient(settings), node_name, objects.handle)
    source.start(stop)
    try:
        _wait_until_listed(source, list_seconds, problem_seconds)
    finally:
        stop.set()
        source.join(_END_SECONDS)
    return objects.additions()


def _wait_until_listed(source: ApiServerSource, list_seconds: float, problem_seconds: float) -> None:
    started = time.monotonic()
    works_until = started + problem_seconds
    while unlisted := source.unlisted():
        now = time.monotonic()
        problems = source.problems()
        if not problems:
            works_until = now + problem_seconds
        if now > works_until:
            raise ApiServerError("; ".join(problems))
        if now > started + list_seconds:
            msg = f"the API server has not listed {', '.join(unlisted)} within {list_seconds:g} s"
            raise ApiServerError(msg)
        time.sleep(_POLL_SECONDS)
