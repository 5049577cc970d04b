"""A running knft with manifests, in a namespace whose loopback interface has the addresses of its endpoints."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.command_schemas import validated
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import NODE_FLAG, knft
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import LoggedProcess

REFUSED_ADDRESS = "10.96.0.66"
"""The kernel refuses Services with this cluster IP."""
_RUN = f"""
import sys
from knft.cli.main import main
from knft.errors import KernelError
from knft.kernel.table import KernelTable
from knft.serve import kernel_counters

kernel_counters.READ_SECONDS = 0.2
commit = KernelTable.commit

def refuse_one_address(table, transaction):
    if any("{REFUSED_ADDRESS}" in key for added in transaction.added.values() for key in added):
        raise KernelError("refused for the test")
    commit(table, transaction)

KernelTable.commit = refuse_one_address
"""
UNNOTICED_CHANGES = """
from knft.sync.foreign_change_watch import ForeignChangeWatch

ForeignChangeWatch.record = lambda *_: None
"""
"""A knft that overlooks changes by other programs, until an audit."""


class ControlledKnft(LoggedProcess):
    """``knft run``, and commands that ask it; its kernel refuses ``REFUSED_ADDRESS``."""

    def __init__(self, folder: Path, endpoints: Sequence[int] = (11, 12, 13), *flags: str, patch: str = "") -> None:
        """Start with Service ``default/web`` and endpoints such as 10.244.2.11, without waiting for the first sync.

        ``patch`` is Python code that runs before knft's command.
        """
        self.namespace = Namespace.create("controlled")
        self._manifests = folder / "manifests"
        self._manifests.mkdir()
        self.write("web", service("web", 1), *slices("web", endpoints))
        arguments = ["run", "--manifests", str(self._manifests), *NODE_FLAG, "--min-sync-period", "0", "-v2"]
        arguments += [*flags, "--sync-period", "1s"]  # after which a quarantined Service port is retried
        super().__init__(
            self.namespace, [sys.executable, "-P", "-c", f"{_RUN}{patch}main()", *arguments], folder / "log"
        )

    def write(self, name: str, *objects: dict[str, Any]) -> None:
        """Replace a file of manifests."""
        new = self._manifests.parent / "new"
        new.write_text(yaml.safe_dump_all(objects))
        new.rename(self._manifests / f"{name}.yaml")

    def wait_until_synced(self) -> None:
        """Wait for the first sync of both families."""
        self.wait_until(lambda: self.log_text().count("full sync") >= 2)

    def ask(self, *arguments: str) -> Any:
        """Return the JSON that a command prints, which matches its schema."""
        return validated(arguments[0], knft(self.namespace, *arguments, "-o", "json").stdout)

    def endpoint_changes(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the changes of endpoints that ``knft history`` prints."""
        return [entry for entry in self.ask("history", *arguments)["entries"] if entry["type"] == "endpoints"]

    def wait_for_change(self, *arguments: str) -> dict[str, Any]:
        """Wait for a change of endpoints that ``knft history`` prints with these arguments; return the last one."""
        found: list[dict[str, Any]] = []

        def has_change() -> bool:
            found[:] = self.endpoint_changes(*arguments)
            time.sleep(0 if found else 0.1)
            return bool(found)

        self.wait_until(has_change)
        return found[-1]

    def close(self) -> None:
        """Kill the process, and remove the namespace."""
        self.process.kill()
        self.process.wait()
        self.namespace.close()
