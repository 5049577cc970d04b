"""``knft run`` for the demo: a process in the node's namespace, whose log is parsed."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.lab import plan
from tests.support.lab.namespace import Namespace
from tests.support.waiting import TIMEOUT

# PR_SET_PDEATHSIG: the kernel kills knft when the demo ends, however that happens.
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
_SYNCED = re.compile(
    r"(?P<family>IPv[46]): (?P<kind>full sync|partial sync) of (?P<ports>\d+) Service ports in (?P<ms>[\d.]+) ms "
    r"\((?P<kernel_ms>[\d.]+) ms in the kernel\): (?P<added>\d+) elements added, (?P<removed>\d+) removed"
)


class Sync(NamedTuple):
    """A sync, as a line of the log reports it; times are in milliseconds."""

    family: str
    kind: str
    milliseconds: float
    kernel_milliseconds: float
    added: int
    removed: int

    @property
    def changed(self) -> bool:
        """Whether the sync changed elements."""
        return bool(self.added or self.removed)


class Knft:
    """``knft run`` on the node; a context manager that ends it."""

    def __init__(self, node: Namespace, manifests: Path) -> None:
        """Take the namespace and the directory; nothing is started yet."""
        self._node = node
        self.command = [
            *("run", "--manifests", str(manifests), "--node", plan.NODE.node_name, "--min-sync-period", "50ms", "-v2"),
            *("--cluster-cidr", f"{plan.CLUSTER.ipv4},{plan.CLUSTER.ipv6}"),
            *("--service-cidr", f"{plan.SERVICES.ipv4},{plan.SERVICES.ipv6}"),
        ]
        self.syncs: list[Sync] = []
        self.other_lines: list[str] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        """Start knft, and a thread that reads its log."""
        command = [sys.executable, "-c", _DIE_WITH_PARENT, sys.executable, "-m", "knft", *self.command]
        self._process = self._node.popen(command, stderr=subprocess.PIPE)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End knft: SIGTERM, and SIGKILL if it does not end in time."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_for(self, count: int, timeout: float = TIMEOUT) -> list[Sync]:
        """Return the syncs that changed elements, once there are ``count``; raise TimeoutError after a timeout."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while len(found := [sync for sync in self.syncs if sync.changed]) < count:
                if not self._changed.wait(deadline - time.monotonic()):
                    log = "\n".join(self.other_lines)
                    msg = f"knft did not sync in time; its log:\n{log}"
                    raise TimeoutError(msg)
        return found

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            match = _SYNCED.search(line)
            with self._changed:
                if match is None:
                    self.other_lines.append(line.rstrip())
                else:
                    self.syncs.append(_sync(match))
                self._changed.notify_all()


def _sync(match: re.Match[str]) -> Sync:
    return Sync(
        match["family"],
        match["kind"],
        float(match["ms"]),
        float(match["kernel_ms"]),
        int(match["added"]),
        int(match["removed"]),
    )
