"""``knft run`` as a process, following one Service of its own in whatever namespaces it is started in."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import yaml

from tests.kernel.harness import service, slices
from tests.packets.node import KNFT, NODE_FLAG
from tests.support.lab.logged_process import LoggedProcess
from tests.support.lab.namespace import Namespace


class Daemon(LoggedProcess):
    """``knft run``, started by a command that makes it somebody else's."""

    def __init__(self, namespace: Namespace, folder: Path, before: Sequence[str] = ()) -> None:
        self._manifests = folder / "manifests"
        self._manifests.mkdir()
        self.write(1)
        arguments = ["run", "--manifests", str(self._manifests), *NODE_FLAG, "--min-sync-period", "0", "-v2"]
        super().__init__(namespace, [*before, *KNFT, *arguments], folder / "log")
        self.until(lambda: self.said().count("full sync") >= 2)
        fd = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.namespace = Namespace("daemon", fd)

    def write(self, number: int) -> None:
        """Write a Service with a cluster IP of that number, and its endpoints."""
        text = yaml.safe_dump_all([service("web", number), *slices("web", range(11, 14))])
        new = self._manifests.parent / "new"
        new.write_text(text)
        new.rename(self._manifests / "web.yaml")

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
