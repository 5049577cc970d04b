"""The endpoints of the Services over time: those of one Service are replaced again and again."""

import time

from tests.cluster.api import Api
from tests.parity.marker import Marker
from tests.parity.migration.services import CHANGED, POOLS, without_node
from tests.support.packets.churn import SERVICES, slices_between
from tests.support.packets.timeline import Timeline
from tests.support.scenario import Scenario


class Endpoints:
    """The endpoints of all Services over time."""

    def __init__(self, api: Api, marker: Marker) -> None:
        """All Services have the first pool."""
        self._api, self._marker = api, marker
        self._current, self._other = POOLS
        self._changed_at: float | None = None
        self.timelines = {service.name: Timeline() for service in SERVICES}
        for timeline in self.timelines.values():
            timeline.record(time.monotonic(), self._current, time.monotonic())

    @property
    def is_pending(self) -> bool:
        """Whether the last change has not been reported as being in force."""
        return self._changed_at is not None

    def replace(self) -> None:
        """Replace all endpoints of one Service, and write the marker."""
        self._changed_at = time.monotonic()
        items = slices_between(CHANGED, self._current, self._other)
        for item in without_node(Scenario("", list(items), ()).manifests()):
            self._api.replace({**item, "metadata": {**item["metadata"], "namespace": "default"}})
        self._current, self._other = self._other, self._current
        self._marker.write("")

    def in_force(self) -> None:
        """Record that new connections get the endpoints of the last change from now on."""
        if self._changed_at is not None:
            self.timelines[CHANGED].record(self._changed_at, self._current, time.monotonic())
        self._changed_at = None
