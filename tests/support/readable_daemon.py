"""ReadableDaemon: the daemon of ``knft run`` on any tables, and a reader that asks it for its objects."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from knft.config import Config
from knft.control.messages import PODS_PATH, SourceStatus
from knft.control.object_reader import ObjectReader
from knft.control.objects import PodPage
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, ObjectChange
from knft.serve.http_message import Response
from knft.serve.last_syncs import LastSyncs
from knft.serve.objects import read_objects
from knft.serve.proxy_health import ProxyHealth
from knft.serve.status import StatusSources
from knft.serve.timestamp import now
from knft.sync.daemon import Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.proxier import Proxier
from knft.sync.service_warnings import ServiceWarnings
from knft.sync.state import ServiceState
from knft.sync.table_interface import TableInterface
from knft.track.service_problems import ServiceProblems


class ReadableDaemon:
    """Both families; ``paths`` are the requests for objects."""

    def __init__(
        self, config: Config, tables: Mapping[Family, TableInterface], local_addresses: Iterable[str] = ()
    ) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.config = config
        self.states = {family: ServiceState(family, config.node_name, start) for family in Family}
        proxiers = [
            Proxier(family, config, state, tables[family], time.monotonic) for family, state in self.states.items()
        ]
        warnings = ServiceWarnings(ServiceProblems(self._slices_of))
        dispatcher = Dispatcher(config, tuple(self.states.values()), warnings)
        health, last_syncs = ProxyHealth(30.0, now), LastSyncs(now)
        self.daemon = Daemon(proxiers, dispatcher, observers=(health, last_syncs), service_warnings=warnings)
        self.daemon.update_local_addresses(frozenset(local_addresses))
        self.source = SourceStatus("manifests", "/manifests")
        self._sources = StatusSources(
            config.node_name, now(), now, self.daemon, health, last_syncs, lambda: self.source
        )
        self._objects: dict[tuple[type, NamespacedName], KubeObject] = {}
        self.paths: list[str] = []
        self.reader = ObjectReader(self._ask)

    def _slices_of(self, service: NamespacedName) -> Iterator[EndpointSlice]:
        return itertools.chain.from_iterable(state.slices(service) for state in self.states.values())

    def add(self, *items: KubeObject) -> None:
        """Create or replace objects."""
        self.daemon.handle([self._change(item, item) for item in items])

    def delete(self, *items: KubeObject) -> None:
        """Delete objects."""
        self.daemon.handle([self._change(item, None) for item in items])

    def _change(self, item: KubeObject, current: KubeObject | None) -> ObjectChange:
        previous = self._objects.pop((type(item), item.key), None)
        if current is not None:
            self._objects[type(item), item.key] = current
        return ObjectChange(previous, current)

    def respond(self, path: str) -> Response:
        """Return the response to a request for objects."""
        return read_objects(path, self.config, self._sources)

    def _ask(self, path: str) -> bytes:
        if path.startswith(PODS_PATH):
            return msgspec.json.encode(PodPage())  # As if the objects came from manifests.
        self.paths.append(path)
        response = self.respond(path)
        assert response.status == 200, path
        return response.body
