"""``knft run`` on the node, started and killed again and again."""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.packets.node import KNFT, NODE_FLAG
from tests.packets.scenario import Scenario
from tests.support.lab.namespace import Namespace

HANG = 120.0
"""Seconds after which a test gives up; nothing is measured."""
FLAGS = (*NODE_FLAG, *Scenario("", [], ()).arguments())

IDLE = "0 elements added, 0 removed, 0 chains written"


class Running:
    """One life of ``knft run``, with a log of its own; it is killed, never asked to stop."""

    def __init__(self, namespace: Namespace, manifests: Path, log: Path) -> None:
        """Start it; nothing is waited for."""
        self._namespace, self._log = namespace, log
        command = [*KNFT, "run", "--manifests", str(manifests), *FLAGS, "--min-sync-period", "0", "-v2"]
        with log.open("w") as file:
            self._process = namespace.popen(command, stderr=file)

    def said(self) -> str:
        """Return what it has logged."""
        return self._log.read_text()

    def kill(self) -> None:
        """Kill it, and return when nothing of it is left: not the process of libnftables either."""
        self._process.kill()
        self._process.wait()
        until(lambda: not workers_of(self._process.pid), "the process of libnftables outlives knft")

    def until_in_force(self) -> list[str]:
        """Wait until both families were compared with the kernel; return what it said of that."""
        until(lambda: len(self._full_syncs()) >= 2, "no full sync", self._is_alive)
        return self._full_syncs()

    def until_quiet(self, seconds: float = 4.0) -> None:
        """Wait until it has had nothing to say for some seconds: it says every sync."""
        deadline, heard, since = time.monotonic() + HANG, "", time.monotonic()
        while time.monotonic() < since + seconds:
            assert time.monotonic() < deadline, self.said()
            self._is_alive()
            if (said := self.said()) != heard:
                heard, since = said, time.monotonic()
            time.sleep(0.1)

    def until_synced_again(self, change: Callable[[], None]) -> None:
        """Make a change, and wait until it is in force in both families."""
        before = len(self._syncs())
        change()
        until(lambda: len(self._syncs()) >= before + 2, "no sync after a change", self._is_alive)

    def _syncs(self) -> list[str]:
        return [line for line in self.said().splitlines() if "elements added" in line]

    def _full_syncs(self) -> list[str]:
        return [line for line in self.said().splitlines() if "full sync" in line]

    def _is_alive(self) -> None:
        assert self._process.poll() is None, self.said()


def until(condition: Callable[[], bool], otherwise: str, check: Callable[[], None] = lambda: None) -> None:
    """Wait for a condition; fail after a long while."""
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline, otherwise
        check()
        time.sleep(0.005)


def workers_of(parent: int) -> list[int]:
    """Return the processes of libnftables that a process has started, which may have died: they are told its number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if b"knft.kernel.worker" in arguments and str(parent).encode() in arguments:
                found.append(int(process.name))
    return found


class Monitor:
    """Everything that changes in a namespace's rules during a block, as ``nft monitor`` prints it."""

    def __init__(self, namespace: Namespace, file: Path) -> None:
        """Prepare to listen."""
        self._namespace, self._file = namespace, file

    def __enter__(self) -> Self:
        """Return when it listens."""
        with self._file.open("w") as file:
            self._process = self._namespace.popen(["nft", "monitor"], stdout=file, stderr=subprocess.STDOUT)
        until(lambda: self._hears("begin"), "nft monitor is deaf")
        return self

    def __exit__(self, *_: object) -> None:
        """Return when it has heard everything."""
        until(lambda: self._hears("end"), "nft monitor has stopped listening")
        self._process.kill()
        self._process.wait()

    def _hears(self, what: str) -> bool:
        self._namespace.run(["nft", "-f", "-"], stdin=f"add table ip sign-{what}\ndelete table ip sign-{what}")
        return f"sign-{what}" in self._file.read_text()

    def changes(self) -> list[str]:
        """Return what was heard of others' doings in any table but the probe's; "new generation" lines are left out."""
        own = ("sign-begin", "sign-end", "knft-probe", "# new generation")
        return [line for line in self._file.read_text().splitlines() if line and not any(word in line for word in own)]
