"""A directory of manifests that change all the time.

It has the Services of ``churn``, and 300 others that are added and removed at once.
"""

import json
import math
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

from tests.support.background import run_in_background
from tests.support.packets.churn import SERVICES, Backend, Churn
from tests.support.packets.many_clients import STICKY
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.packets.timeline import Timeline
from tests.support.scenario import Scenario

PERMANENT_BACKENDS = (Backend("local-1", 8080), Backend("remote-1", 8081))
"""Endpoints of every Service that are never removed: clients that are stuck to them stay."""
MANY = 300
PAUSE = 0.15
"""Longest time between two changes, in seconds."""


class ChangingManifests:
    """The directory, and the endpoints of each Service over time."""

    def __init__(self, folder: Path, rng: Random) -> None:
        """Write the first objects."""
        self._folder, self._rng = folder, rng
        self._churn = Churn(rng, PERMANENT_BACKENDS)
        self._by_name = {kind.name: kind for kind in SERVICES}
        self.timelines = {kind.name: Timeline() for kind in SERVICES}
        for name in self.timelines:
            self._write_service(name)
        self._write_many()

    def changing(self) -> AbstractContextManager[None]:
        """Change manifests at random during the block."""
        return run_in_background(self._change, "manifests")

    def _change(self, stop: threading.Event) -> None:
        while not stop.wait(self._rng.uniform(0, PAUSE)):
            if self._rng.random() < 0.05:
                self._write_many()
            else:
                self._write_service(self._churn.step()[0])

    def _write_service(self, name: str) -> None:
        # knft may apply the change at any time from now on.
        self.timelines[name].record(time.monotonic(), self._churn.pools[name], math.inf)
        self._write(name, self._churn.objects_of(self._by_name[name]))

    def _write_many(self) -> None:
        """Replace the 300 Services by as many others, or by none; a few are sticky."""
        first = self._rng.choice((0, 0, MANY, 2 * MANY))
        self._write(
            "many", [item for number in range(first, first + MANY * (first > 0)) for item in _numbered_objects(number)]
        )

    def write_unrelated_service(self, number: int) -> None:
        """Change a Service without clients, so that knft syncs: chains to be deleted are deleted with a later sync."""
        self._write("nudge", [service("nudge", number, *tcp_and_udp("http", 80))])

    def _write(self, name: str, objects: list[dict[str, Any]]) -> None:
        """Write a file atomically."""
        items = Scenario("", objects, ()).manifests()
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        new.rename(self._folder / f"{name}.json")


def _numbered_objects(number: int) -> list[dict[str, Any]]:
    name, sticky = f"many-{number}", STICKY if number % 30 == 0 else {}
    item = service(name, 1, *tcp_and_udp("http", 80), **sticky)
    own = [f"10.96.{number // 250 + 1}.{number % 250 + 1}", f"fd00:10:96::{number + 0x1000:x}"]
    item["spec"] |= {"clusterIP": own[0], "clusterIPs": own, "ipFamilies": ["IPv4", "IPv6"]}
    return [item, endpoints(name, f"local-{number % 4 + 1}", f"remote-{number % 8 + 1}", http=8080 + number % 3)]
