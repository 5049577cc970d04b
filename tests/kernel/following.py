"""``knft run`` as a process, following one Service of its own in whatever namespaces it is started in."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import yaml

from tests.kernel.harness import service, slices
from tests.lab.namespace import Namespace
from tests.packets.node import KNFT, NODE_FLAG

HANG = 60.0
"""Seconds after which a test gives up; nothing is measured."""


class Daemon:
    """``knft run``, started by a command that makes it somebody else's."""

    def __init__(self, namespace: Namespace, folder: Path, before: Sequence[str] = ()) -> None:
        self._log, self._manifests = folder / "log", folder / "manifests"
        self._manifests.mkdir()
        self.write(1)
        with self._log.open("w") as log:
            arguments = ["run", "--manifests", str(self._manifests), *NODE_FLAG, "--min-sync-period", "0", "-v2"]
            self.process = namespace.popen([*before, *KNFT, *arguments], stderr=log)
        self.until(lambda: self.said().count("full sync") >= 2)
        fd = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.namespace = Namespace("daemon", fd)

    def write(self, number: int) -> None:
        """Write a Service with a cluster IP of that number, and its endpoints."""
        text = yaml.safe_dump_all([service("web", number), *slices("web", range(11, 14))])
        new = self._manifests.parent / "new"
        new.write_text(text)
        new.rename(self._manifests / "web.yaml")

    def said(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)

    def serves(self, number: int) -> bool:
        """Whether that cluster IP is in the table."""
        return f"10.96.0.{number} " in self.namespace.run(["nft", "list", "map", "ip", "knft", "service-ips"]).stdout

    def __enter__(self) -> Self:
        """Return it; its rules are in force."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()
        self.namespace.close()
