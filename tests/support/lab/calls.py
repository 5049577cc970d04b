"""Calls without end: processes that dial targets at random, one for each host, and write down every call.

``Callers`` starts them; ``caller`` is one of them. Times are those of ``time.monotonic``, which all processes share.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from .outcomes import Protocol
from .topology import Host


class Target(NamedTuple):
    """Whom to dial, and from which addresses; from the host's own where there are none."""

    address: str
    port: int
    protocol: Protocol
    sources: tuple[str, ...] = ()


class Call(NamedTuple):
    """One connection: when, from where, and who answered at which port; ``trouble`` is why nobody did.

    ``again`` counts what the client's kernel had to send a second time, since TCP hides by that what was lost.
    """

    target: int
    source: str
    begun: float
    ended: float
    server: str
    port: int
    again: int
    trouble: str

    @classmethod
    def parse(cls, line: str) -> "Call":
        """Return what ``str`` has written."""
        target, source, begun, ended, server, port, again, trouble = line.split()
        return cls(int(target), source, float(begun), float(ended), server, int(port), int(again), trouble)

    def __str__(self) -> str:
        """Return the call as one line of words."""
        times = f"{self.begun:.6f} {self.ended:.6f}"
        return f"{self.target} {self.source} {times} {self.server} {self.port} {self.again} {self.trouble}"


NONE = "-"
"""The word for no server, no chosen source, and no trouble."""


class Callers:
    """A process on each host, that dials its targets ``count`` times in all; a context manager, which ends them."""

    def __init__(
        self, plans: Mapping[Host, Sequence[Target]], folder: Path, count: int, seed: int, *, pause: float = 0.0
    ) -> None:
        """Prepare to call so often from each host; what is written down goes to files in ``folder``.

        A ``pause`` of so many seconds after each call keeps a caller from coming back to a port within the half
        minute for which a flow of UDP is remembered, however many calls it makes.
        """
        self._plans, self._folder, self._count, self._seed, self._pause = plans, folder, count, seed, pause
        self._processes: list[subprocess.Popen[str]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start dialling."""
        for number, (host, targets) in enumerate(self._plans.items()):
            plan = json.dumps(
                {"targets": targets, "count": self._count, "seed": self._seed + number, "pause": self._pause}
            )
            file = self._open.enter_context(self._file(host).open("w"))
            command = [sys.executable, "-m", "tests.support.lab.caller", plan]
            self._processes.append(host.namespace.popen(command, stdout=file))
        return self

    def __exit__(self, *_: object) -> None:
        """End those that still dial, each after its present call."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._open.close()

    @property
    def are_calling(self) -> bool:
        """Whether any is still dialling; a process that failed is raised."""
        ended = [process.poll() for process in self._processes]
        assert not any(ended), "a caller failed"
        return None in ended

    def calls(self, host: Host) -> Iterator[Call]:
        """Yield what a host has written down, in the order of its calls; it must have ended."""
        with self._file(host).open() as lines:
            yield from map(Call.parse, lines)

    def _file(self, host: Host) -> Path:
        return self._folder / f"calls-{host.name}"
