"""Changes objects through the API server all the time: random changes of ``churn``, and Services that come and go."""

import math
import threading
import time
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from tests.cluster.api import INVALID, Api, ApiError
from tests.cluster.desired import FIRST_PORT, desired_objects
from tests.support.background import run_in_background
from tests.support.packets.changing_manifests import PERMANENT_BACKENDS
from tests.support.packets.churn import SERVICES, Churn
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.packets.timeline import Timeline
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

PAUSE = 0.1
"""The maximum number of seconds between two changes."""
_PASSING = ("passing-1", "passing-2", "passing-3")
_RETRY_SECONDS = 0.2


class BackgroundChanges:
    """Changes objects in a thread, and records the history of each Service's endpoints."""

    def __init__(self, api: Api, chance: Random) -> None:
        """Write the first objects."""
        self._api, self._chance = api, chance
        self._churn = Churn(chance, PERMANENT_BACKENDS)
        self.timelines = {kind.name: Timeline() for kind in SERVICES}
        self._stop = threading.Event()
        self.written = 0
        """How many changes the API server has accepted."""
        for kind in SERVICES:
            self._record_pool(kind.name)
            self._write(self._churn.objects_of(kind))

    def running(self) -> AbstractContextManager[None]:
        """Change objects during the block; a request that the API server does not accept is repeated until it does."""
        return run_in_background(self._change, "changes")

    def wait_for_changes(self, more: int) -> None:
        """Wait until so many more changes were accepted."""
        target = self.written + more
        wait_until(lambda: self.written >= target, "the API server accepts no changes")

    def _change(self, stop: threading.Event) -> None:
        self._stop = stop
        while not stop.wait(self._chance.uniform(0, PAUSE)):
            if self._chance.random() < 0.1:
                self._toggle_service(self._chance.choice(_PASSING))
                continue
            name, slices = self._churn.step()
            self._record_pool(name)
            self._write(slices)

    def _record_pool(self, name: str) -> None:
        # When knft programs a change is unknown here: any later call may still see an earlier pool.
        self.timelines[name].record(time.monotonic(), self._churn.pools[name], math.inf)

    def _toggle_service(self, name: str) -> None:
        """Create a Service that no client calls, with its endpoints, or delete it; do nothing if it is refused.

        If the API server is killed during this, the addresses can stay allocated for ever (seen in Kubernetes 1.36).
        """
        number = 80 + _PASSING.index(name)
        item = service(name, number, *tcp_and_udp("http", 80))
        objects = [item, endpoints(name, f"local-{self._chance.randint(1, 4)}", "remote-2", http=8080)]
        if self._retry("get", _as_sent(item)[0]) is None:
            self._write(objects, must_succeed=False)
        else:
            for one in _as_sent(*objects):
                self._retry("delete", one)
                self.written += 1

    def _write(self, objects: list[dict[str, Any]], *, must_succeed: bool = True) -> None:
        for item in _as_sent(*objects):
            self._put(item, must_succeed=must_succeed)
            self.written += 1

    def _put(self, item: dict[str, Any], *, must_succeed: bool) -> None:
        """Create or replace an object.

        It always replaces the version that was read before: a request that timed out, and that a paused server carries
        out later, is refused then.
        """
        while True:
            existing = self._retry("get", item)
            try:
                self._put_over(existing, item)
            except ApiError as error:
                # An API server that has just started does not know all ServiceCIDRs yet.
                if error.status == INVALID and "failed to allocate" not in str(error):
                    raise
                if (error.status == INVALID and not must_succeed) or self._stop.wait(_RETRY_SECONDS):
                    return
            else:
                return

    def _put_over(self, existing: dict[str, Any] | None, item: dict[str, Any]) -> None:
        if existing is None:
            now = self._api.create(item)
        else:
            version = {"resourceVersion": existing["metadata"]["resourceVersion"]}
            now = self._api.replace({**item, "metadata": {**item["metadata"], **version}})
        if "status" in item and now.get("status") != item["status"]:
            self._api.replace({**now, "status": item["status"]}, "/status")

    def _retry(self, what: str, item: dict[str, Any]) -> dict[str, Any] | None:
        """Get or delete an object, with retries; return None if it does not exist."""
        while True:
            try:
                found: dict[str, Any] | None = getattr(self._api, what)(item)
            except ApiError as error:
                if error.status == 404 or self._stop.wait(_RETRY_SECONDS):
                    return None
            else:
                return found


def _as_sent(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of both families as they are sent to the API server, without the Node."""
    wanted = desired_objects(Scenario("", list(objects), ()).manifests(), with_service_cidr=False).values()
    sent = [{**one.item, **({"status": one.status} if one.status else {})} for one in wanted]
    for item in sent:
        # ``desired_objects`` numbers these ports per call, so two Services would get the same healthCheckNodePort.
        if "healthCheckNodePort" in item.get("spec", {}):
            item["spec"]["healthCheckNodePort"] = FIRST_PORT + item["spec"]["ports"][0]["nodePort"] % 1000
    return [item for item in sent if item["kind"] != "Node"]
