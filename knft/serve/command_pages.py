"""CommandPages: what the control socket answers to commands such as ``knft status``."""

from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, structs

from knft.config import Config
from knft.control.messages import (
    AUDIT_PATH,
    AUDITS_PATH,
    COUNTERS_PATH,
    HISTORY_PATH,
    OBJECTS_PATH,
    PODS_PATH,
    STATUS_PATH,
    Audits,
    Counters,
    History,
    ServerOutage,
    SourceStatus,
    entry_time,
)
from knft.model.names import NamespacedName
from knft.serve.http_message import JSON, Request, Response
from knft.serve.pages import Router
from knft.sync.audit_schedule import AuditSchedule

if TYPE_CHECKING:
    import asyncio

    from knft.control.objects import PodPage
    from knft.serve.pod_requests import PodRequests
    from knft.serve.status import StatusSources


class CommandSource(Protocol):
    """The source of the objects, as commands see it; any thread may call the methods."""

    def status(self) -> SourceStatus:
        """Return where the objects come from."""

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return when the API server could not be watched."""

    def list_pods(self, service: NamespacedName, token: str) -> "PodPage":
        """Request a page of the pods of a Service's endpoints; raises ApiServerError."""


class CommandPages:
    """Answers requests of commands; modules that only these need are loaded at the first request."""

    def __init__(
        self,
        config: Config,
        source: CommandSource,
        status_sources: "Callable[[], StatusSources]",
        *,
        history: Callable[[], History],
        counters: Callable[[], Counters],
        audits: AuditSchedule,
    ) -> None:
        """Read nothing yet; ``status_sources`` returns what a status is read from."""
        self._config = config
        self._source = source
        self._status_sources = status_sources
        self._read_history = history
        self._read_counters = counters
        self._pages = Router(
            {
                STATUS_PATH: self._status,
                HISTORY_PATH: self._history,
                COUNTERS_PATH: self._counters,
                AUDIT_PATH: lambda: _answer(Audits(audits.ended, audits.request())),
                AUDITS_PATH: lambda: _answer(Audits(audits.ended)),
            }
        )

    def respond(self, request: Request) -> "Response | asyncio.Future[Response]":
        """Return the response to a request, or its future; call this only in the thread of the HTTP servers."""
        if request.method != "GET" or not request.path.startswith(OBJECTS_PATH):
            return self._pages(request)
        if request.path.startswith(PODS_PATH):
            return self._pod_requests.respond(request.path)
        from knft.serve.objects import read_objects  # noqa: PLC0415

        return read_objects(request.path, self._config, self._status_sources())

    @cached_property
    def _pod_requests(self) -> "PodRequests":
        from knft.serve.pod_requests import PodRequests  # noqa: PLC0415

        return PodRequests(self._source.list_pods, self._has_endpoints)

    def _has_endpoints(self, service: NamespacedName) -> bool:
        return any(state.slices(service) for state in self._status_sources().daemon.states.values())

    def _status(self) -> Response:
        from knft.serve.status import read_status  # noqa: PLC0415

        return _answer(read_status(self._status_sources()))

    def _history(self) -> Response:
        found = self._read_history()
        entries = tuple(sorted((*found.entries, *self._source.outages()), key=entry_time))
        return _answer(structs.replace(found, entries=entries, node=self._config.node_name))

    def _counters(self) -> Response:
        return _answer(structs.replace(self._read_counters(), node=self._config.node_name))


def _answer(found: Struct) -> Response:
    return Response(HTTPStatus.OK, msgspec.json.encode(found), JSON)
