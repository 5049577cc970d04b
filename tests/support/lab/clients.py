"""Client processes, one for each host, that connect to targets at random and record every connection.

The processes run ``client_process``. Times are those of ``time.monotonic``, which is the same in all processes.
"""

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.lab.outcomes import Protocol
from tests.support.lab.topology import Host
from tests.support.waiting import wait_until


class ClientTarget(NamedTuple):
    """An address to connect to, and the source addresses to use: the host's own if there are none."""

    address: str
    port: int
    protocol: Protocol
    sources: tuple[str, ...] = ()


class Connection(NamedTuple):
    """One connection: its times, its source, and the server and port that answered.

    ``error`` is the name of the error if no server answered. ``retransmissions`` counts TCP segments that the client's
    kernel sent again, which would hide lost packets.
    """

    target: int
    source: str
    started: float
    ended: float
    server: str
    port: int
    retransmissions: int
    error: str

    @classmethod
    def parse(cls, line: str) -> "Connection":
        """Return the connection that ``str`` has written."""
        target, source, started, ended, server, port, retransmissions, error = line.split()
        return cls(int(target), source, float(started), float(ended), server, int(port), int(retransmissions), error)

    def __str__(self) -> str:
        """Return the connection as one line of fields."""
        times = f"{self.started:.6f} {self.ended:.6f}"
        return f"{self.target} {self.source} {times} {self.server} {self.port} {self.retransmissions} {self.error}"


NONE = "-"
"""Stands for no server, no chosen source, and no error."""


class ClientProcesses:
    """One process on each host, which connects to its targets ``count`` times; a context manager, which ends them."""

    def __init__(
        self, plans: Mapping[Host, Sequence[ClientTarget]], folder: Path, count: int, seed: int, *, pause: float = 0.0
    ) -> None:
        """Take the targets of each host; the records go to files in ``folder``.

        ``pause`` is the time in seconds after each connection. With 1 ms, 40 000 connections take longer than the 30
        seconds for which conntrack keeps a UDP entry, so that no source port is used again before.
        """
        self._plans, self._folder, self._count, self._seed, self._pause = plans, folder, count, seed, pause
        self._processes: list[subprocess.Popen[str]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start the processes."""
        for number, (host, targets) in enumerate(self._plans.items()):
            plan = json.dumps(
                {"targets": targets, "count": self._count, "seed": self._seed + number, "pause": self._pause}
            )
            file = self._open.enter_context(self._file(host).open("w"))
            command = [sys.executable, "-m", "tests.support.lab.client_process", plan]
            self._processes.append(host.namespace.popen(command, stdout=file))
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes, each after its current connection."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._open.close()

    def wait_for_connections(self) -> None:
        """Return when every process has recorded its first connection."""
        for host in self._plans:
            file = self._file(host)
            wait_until(lambda file=file: file.stat().st_size > 0, f"no connection from {host.name}")  # type: ignore[misc]

    def wait_for_more(self) -> None:
        """Return when every process has made about 100 connections since this call, or more.

        A process writes its records in blocks: all connections of the second block begin after the call.
        """
        sizes = {host: self._file(host).stat().st_size for host in self._plans}
        for host, size in sizes.items():
            file = self._file(host)
            wait_until(
                lambda file=file, size=size: file.stat().st_size >= size + 2 * io.DEFAULT_BUFFER_SIZE,  # type: ignore[misc]
                f"{host.name} makes no more connections",
                lambda: self.are_running,
            )

    @property
    def are_running(self) -> bool:
        """Whether any process is still running; a failed one is an assertion error."""
        ended = [process.poll() for process in self._processes]
        assert not any(ended), "a client process failed"
        return None in ended

    def connections(self, host: Host) -> Iterator[Connection]:
        """Yield the connections of a host in their order; its process must have ended."""
        with self._file(host).open() as lines:
            yield from map(Connection.parse, lines)

    def _file(self, host: Host) -> Path:
        return self._folder / f"calls-{host.name}"
