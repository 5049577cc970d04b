"""A cluster that never rests, written through the API server: what ``churn`` draws, and Services that come and go."""

import math
import threading
import time
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from tests.cluster.api import INVALID, Api, ApiError
from tests.cluster.desired import FIRST_PORT, desired_objects
from tests.packets.changing_manifests import PERMANENT_BACKENDS
from tests.packets.churn import SERVICES, Churn
from tests.packets.programmed import endpoints, service, tcp_and_udp
from tests.packets.timeline import Timeline
from tests.support.background import run_in_background
from tests.support.scenario import Scenario

PAUSE = 0.1
"""Seconds between two changes, at most."""
_PASSING = ("passing-1", "passing-2", "passing-3")
_AGAIN = 0.2


class BackgroundChanges:
    """The objects, and what each Service had so far; one thread writes them."""

    def __init__(self, api: Api, chance: Random) -> None:
        """Write the first objects."""
        self._api, self._chance = api, chance
        self._churn = Churn(chance, PERMANENT_BACKENDS)
        self.timelines = {kind.name: Timeline() for kind in SERVICES}
        self._stop = threading.Event()
        self.written = 0
        """How many changes the API server has taken."""
        for kind in SERVICES:
            self._note(kind.name)
            self._write(self._churn.objects_of(kind))

    def running(self) -> AbstractContextManager[None]:
        """Change something all the time during the block; what the API server does not take is sent until it does."""
        return run_in_background(self._change, "changes")

    def wait_for_changes(self, more: int) -> None:
        """Return when so many more changes were taken."""
        enough, deadline = self.written + more, time.monotonic() + 120
        while self.written < enough:
            assert time.monotonic() < deadline, "the API server takes no changes"
            time.sleep(0.01)

    def _change(self, stop: threading.Event) -> None:
        self._stop = stop
        while not stop.wait(self._chance.uniform(0, PAUSE)):
            if self._chance.random() < 0.1:
                self._pass(self._chance.choice(_PASSING))
                continue
            name, slices = self._churn.step()
            self._note(name)
            self._write(slices)

    def _note(self, name: str) -> None:
        # When knft takes a change in force is not known here: a pool may be in force for ever after.
        self.timelines[name].record(time.monotonic(), self._churn.pools[name], math.inf)

    def _pass(self, name: str) -> None:
        """Make a Service that nobody dials, with its endpoints, or delete it; or do nothing, where it is refused.

        An API server that is killed at one leaves its addresses taken, and may never give them back (1.36).
        """
        number = 80 + _PASSING.index(name)
        item = service(name, number, *tcp_and_udp("http", 80))
        objects = [item, endpoints(name, f"local-{self._chance.randint(1, 4)}", "remote-2", http=8080)]
        if self._tried("get", _sent(item)[0]) is None:
            self._write(objects, insists=False)
        else:
            for one in _sent(*objects):
                self._tried("delete", one)
                self.written += 1

    def _write(self, objects: list[dict[str, Any]], *, insists: bool = True) -> None:
        for item in _sent(*objects):
            self._put(item, insists=insists)
            self.written += 1

    def _put(self, item: dict[str, Any], *, insists: bool) -> None:
        """Write an object as it is to be.

        Always over the version that was read before: a request that was given up, and is carried out later by a server
        that was paused, is refused then.
        """
        while True:
            held = self._tried("get", item)
            try:
                self._put_over(held, item)
            except ApiError as error:
                # One that has just started does not know all its ranges of cluster IPs yet.
                if error.status == INVALID and "failed to allocate" not in str(error):
                    raise
                if (error.status == INVALID and not insists) or self._stop.wait(_AGAIN):
                    return
            else:
                return

    def _put_over(self, held: dict[str, Any] | None, item: dict[str, Any]) -> None:
        if held is None:
            now = self._api.create(item)
        else:
            version = {"resourceVersion": held["metadata"]["resourceVersion"]}
            now = self._api.replace({**item, "metadata": {**item["metadata"], **version}})
        if "status" in item and now.get("status") != item["status"]:
            self._api.replace({**now, "status": item["status"]}, "/status")

    def _tried(self, what: str, item: dict[str, Any]) -> dict[str, Any] | None:
        """Get or delete an object, as often as it takes; return None where there is none."""
        while True:
            try:
                found: dict[str, Any] | None = getattr(self._api, what)(item)
            except ApiError as error:
                if error.status == 404 or self._stop.wait(_AGAIN):
                    return None
            else:
                return found


def _sent(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    """Return objects of both families, as the API server is told of them; the Node is none of them."""
    wanted = desired_objects(Scenario("", list(objects), ()).manifests(), with_range=False).values()
    sent = [{**one.item, **({"status": one.status} if one.status else {})} for one in wanted]
    for item in sent:
        # It was chosen for each Service as if that were alone.
        if "healthCheckNodePort" in item.get("spec", {}):
            item["spec"]["healthCheckNodePort"] = FIRST_PORT + item["spec"]["ports"][0]["nodePort"] % 1000
    return [item for item in sent if item["kind"] != "Node"]
