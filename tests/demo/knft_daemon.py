"""knft as the demo runs it: a process in the node's namespace whose log is read."""

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

# The process asks the kernel to be killed with its parent (PR_SET_PDEATHSIG), so that nothing outlives the demo.
_MORTAL = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
_SYNCED = re.compile(
    r"(?P<family>IPv[46]): (?P<kind>full sync|sync) of (?P<ports>\d+) Service ports in (?P<ms>[\d.]+) ms "
    r"\((?P<kernel_ms>[\d.]+) ms in the kernel\): (?P<added>\d+) elements added, (?P<removed>\d+) removed"
)


class Sync(NamedTuple):
    """One line of the log: what a sync did, and how long it took in milliseconds."""

    family: str
    kind: str
    milliseconds: float
    kernel_milliseconds: float
    added: int
    removed: int

    @property
    def changed(self) -> bool:
        """Whether anything was sent."""
        return bool(self.added or self.removed)


class Knft:
    """``knft run`` on the node; a context manager that ends it."""

    def __init__(self, node: Namespace, manifests: Path) -> None:
        """Prepare the command; it starts on entering."""
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
        """Start knft and read its log."""
        command = [sys.executable, "-c", _MORTAL, sys.executable, "-m", "knft", *self.command]
        self._process = self._node.popen(command, stderr=subprocess.PIPE)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End knft, politely at first."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_for(self, count: int, patience: float = 15.0) -> list[Sync]:
        """Return the syncs that sent something, as soon as there are ``count`` of them; raise TimeoutError else."""
        deadline = time.monotonic() + patience
        with self._changed:
            while len(found := [sync for sync in self.syncs if sync.changed]) < count:
                if not self._changed.wait(deadline - time.monotonic()):
                    said = "\n".join(self.other_lines)
                    msg = f"knft did not sync in time; it said:\n{said}"
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
