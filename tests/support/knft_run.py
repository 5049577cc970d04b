"""``knft run`` as a process that serves the Service manifests of one directory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import yaml

from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import LoggedProcess


class KnftRun(LoggedProcess):
    """``knft run``, optionally started through another command, such as one that changes its user."""

    def __init__(self, namespace: Namespace, folder: Path, before: Sequence[str] = ()) -> None:
        self._manifests = folder / "manifests"
        self._manifests.mkdir()
        self.write_service(1)
        arguments = ["run", "--manifests", str(self._manifests), *NODE_FLAG, "--min-sync-period", "0", "-v2"]
        super().__init__(namespace, [*before, *KNFT, *arguments], folder / "log")
        self.wait_until(lambda: self.log_text().count("full sync") >= 2)
        fd = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.namespace = Namespace("daemon", fd)

    def write_service(self, number: int) -> None:
        """Write a Service with a cluster IP of that number, and its endpoints."""
        text = yaml.safe_dump_all([service("web", number), *slices("web", range(11, 14))])
        new = self._manifests.parent / "new"
        new.write_text(text)
        new.rename(self._manifests / "web.yaml")

    def has_cluster_ip(self, number: int) -> bool:
        """Whether that cluster IP is in the table, if there is one."""
        command = ["nft", "list", "map", "ip", "knft", "service-ips"]
        return f"10.96.0.{number} " in self.namespace.run(command, check=False).stdout

    def __enter__(self) -> Self:
        """Return the process; its rules are in force."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()
        self.namespace.close()
