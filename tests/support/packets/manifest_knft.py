"""``knft run`` as a process on the node, and ``nft monitor``."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace
from tests.support.processes import worker_processes
from tests.support.scenario import Scenario
from tests.support.waiting import TIMEOUT, wait_until

FLAGS = (*NODE_FLAG, *Scenario("", [], ()).arguments())

IDLE = "0 elements added, 0 removed, 0 chains written"


class ManifestKnft:
    """``knft run`` with its log in a file; it is killed, never stopped by a signal that it handles."""

    def __init__(
        self, namespace: Namespace, manifests: Path, log: Path, program: Sequence[str] = KNFT, flags: Sequence[str] = ()
    ) -> None:
        """Start the process; it may not have synced when this returns. ``program`` may be another version of knft."""
        self._namespace, self._log = namespace, log
        command = [*program, "run", "--manifests", str(manifests), *FLAGS, "--min-sync-period", "0", "-v2", *flags]
        with log.open("w") as file:
            self._process = namespace.popen(command, stderr=file)

    def log_text(self) -> str:
        """Return the log."""
        return self._log.read_text()

    def kill(self) -> None:
        """Kill the process, and return when its process of libnftables has ended too."""
        self._process.kill()
        self._process.wait()
        wait_until(lambda: not worker_processes(self._process.pid), "the process of libnftables outlives knft")

    def wait_for_full_syncs(self) -> list[str]:
        """Return when both families were compared with the kernel, with the log lines of these full syncs."""
        wait_until(lambda: len(self._full_syncs()) >= 2, "no full sync", self._is_alive)
        return self._full_syncs()

    def wait_until_idle(self, seconds: float = 4.0) -> None:
        """Return when the log has not grown for ``seconds``: knft logs every sync."""
        deadline, before, since = time.monotonic() + TIMEOUT, "", time.monotonic()
        while time.monotonic() < since + seconds:
            assert time.monotonic() < deadline, self.log_text()
            self._is_alive()
            if (log := self.log_text()) != before:
                before, since = log, time.monotonic()
            time.sleep(0.1)

    def sync_after(self, change: Callable[[], None]) -> None:
        """Make a change, and return when both families were synced after it."""
        before = len(self.syncs())
        change()
        wait_until(lambda: len(self.syncs()) >= before + 2, "no sync after a change", self._is_alive)

    def wait_for_log(self, text: str, count: int = 1) -> None:
        """Return when the log contains a text so many times."""
        wait_until(lambda: self.log_text().count(text) >= count, f"not logged: {text}", self._is_alive)

    def syncs(self) -> list[str]:
        """Return the log lines of all syncs."""
        return [line for line in self.log_text().splitlines() if "elements added" in line]

    def _full_syncs(self) -> list[str]:
        return [line for line in self.log_text().splitlines() if "full sync" in line]

    def _is_alive(self) -> None:
        assert self._process.poll() is None, self.log_text()


class NftMonitor:
    """``nft monitor`` in a namespace during a block: all changes of its rules."""

    def __init__(self, namespace: Namespace, file: Path) -> None:
        """Take the namespace and the file for the output."""
        self._namespace, self._file = namespace, file

    def __enter__(self) -> Self:
        """Start nft, and return when it reports changes."""
        with self._file.open("w") as file:
            self._process = self._namespace.popen(["nft", "monitor"], stdout=file, stderr=subprocess.STDOUT)
        # nft reads all tables first, and begins again if one has changed meanwhile, as this condition does.
        try:
            wait_until(lambda: self._reports("begin"), "nft monitor reports nothing", interval=0.02, growth=2)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End nft when it has reported all changes of the block."""
        try:
            wait_until(lambda: self._reports("end"), "nft monitor has stopped reporting")
        finally:
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _reports(self, what: str) -> bool:
        self._namespace.run(["nft", "-f", "-"], stdin=f"add table ip sign-{what}\ndelete table ip sign-{what}")
        return f"sign-{what}" in self._file.read_text()

    def changes(self) -> list[str]:
        """Return the reported changes, without those of this class and of knft's probe, and generation lines."""
        ignored = ("sign-begin", "sign-end", "knft-probe", "# new generation")
        return [
            line for line in self._file.read_text().splitlines() if line and not any(word in line for word in ignored)
        ]
