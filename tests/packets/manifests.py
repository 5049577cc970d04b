"""A folder of manifests that never rests: what ``churn`` draws, and 300 Services more that come and go at once."""

import json
import math
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

from tests.packets.churn import SERVICES, Backend, Churn
from tests.packets.crowd import STICKY
from tests.packets.programmed import both_protocols, endpoints, service
from tests.packets.scenario import Scenario
from tests.packets.timeline import Timeline
from tests.support.lab.beside import beside

STAYING = (Backend("local-1", 8080), Backend("remote-1", 8081))
"""Endpoints of every Service for good: whoever is stuck to them stays."""
MANY = 300
PAUSE = 0.15
"""Seconds between two changes, at most."""


class Manifests:
    """The folder, and what each Service had in it so far."""

    def __init__(self, folder: Path, chance: Random) -> None:
        """Write the first objects."""
        self._folder, self._chance = folder, chance
        self._churn = Churn(chance, STAYING)
        self._by_name = {kind.name: kind for kind in SERVICES}
        self.timelines = {kind.name: Timeline() for kind in SERVICES}
        for name in self.timelines:
            self._write_service(name)
        self._write_many()

    def changing(self) -> AbstractContextManager[None]:
        """Change something all the time during the block."""
        return beside(self._change, "manifests")

    def _change(self, stop: threading.Event) -> None:
        while not stop.wait(self._chance.uniform(0, PAUSE)):
            if self._chance.random() < 0.05:
                self._write_many()
            else:
                self._write_service(self._churn.step()[0])

    def _write_service(self, name: str) -> None:
        # When knft takes a change in force is not known here: a pool may be in force for ever after.
        self.timelines[name].note(time.monotonic(), self._churn.pools[name], math.inf)
        self._write(name, self._churn.objects_of(self._by_name[name]))

    def _write_many(self) -> None:
        """Replace the many by as many others, or by none; a few are sticky."""
        first = self._chance.choice((0, 0, MANY, 2 * MANY))
        self._write("many", [item for number in range(first, first + MANY * (first > 0)) for item in _one_of(number)])

    def nudge(self, number: int) -> None:
        """Change something that matters to nobody: what may be deleted a second later is deleted with a later sync."""
        self._write("nudge", [service("nudge", number, *both_protocols("http", 80))])

    def _write(self, name: str, objects: list[dict[str, Any]]) -> None:
        """Write a file in one go, as careful programs do."""
        items = Scenario("", objects, ()).manifests()
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        new.rename(self._folder / f"{name}.json")


def _one_of(number: int) -> list[dict[str, Any]]:
    name, sticky = f"many-{number}", STICKY if number % 30 == 0 else {}
    item = service(name, 1, *both_protocols("http", 80), **sticky)
    own = [f"10.96.{number // 250 + 1}.{number % 250 + 1}", f"fd00:10:96::{number + 0x1000:x}"]
    item["spec"] |= {"clusterIP": own[0], "clusterIPs": own, "ipFamilies": ["IPv4", "IPv6"]}
    return [item, endpoints(name, f"local-{number % 4 + 1}", f"remote-{number % 8 + 1}", http=8080 + number % 3)]
