"""Client processes in network namespaces, and their records."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from deploy.cluster.processes import CHECKOUT
from tests.faults.records import ClientPlan, Record
from tests.support.waiting import wait_until

_MORE = 40
"""How many more records a client writes before it counts as having used the cluster since some time."""


class Place(Struct, frozen=True):
    """A place of a client: a process in the same network namespace, and what the client does."""

    pid: int
    plan: ClientPlan


class Traffic:
    """One client process for each place; a context manager, which ends them."""

    def __init__(self, places: Mapping[str, Place], folder: Path) -> None:
        """Take the places by their names, and the directory of the records."""
        self._places, self._folder = places, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start the clients."""
        with ExitStack() as opened:
            opened.callback(self._end)
            for name, place in self._places.items():
                plan = msgspec.json.encode(place.plan).decode()
                enter = ["nsenter", "--target", str(place.pid), "--net", "--"]
                command = [*enter, sys.executable, "-m", "tests.faults.client", plan]
                output = opened.enter_context(self._file(name).open("wb"))
                self._processes[name] = subprocess.Popen(command, stdout=output, cwd=CHECKOUT)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the clients; each waits for its current answers."""
        self._open.close()

    def _end(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()

    def wait_for_more(self) -> None:
        """Return when each client has ended some connections that it has begun since this call."""
        before = {name: self._count(name) for name in self._places}
        for name, count in before.items():
            wait_until(
                lambda name=name, count=count: self._count(name) >= count + _MORE,  # type: ignore[misc]
                f"the client {name} makes no more connections",
                self._check,
                interval=0.2,
            )

    def _check(self) -> None:
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        assert not ended, f"client processes ended: {', '.join(ended)}"

    def _count(self, name: str) -> int:
        return self._file(name).read_bytes().count(b"\n")

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


def read_records(folder: Path) -> Iterator[Record]:
    """Yield all records of clients that have ended; each target names the client's place, too."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = msgspec.json.decode(line, type=Record)
            yield msgspec.structs.replace(record, target=f"{record.target} from {path.stem}")
