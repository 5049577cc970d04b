"""Follows the pods and EndpointSlices of the test through the API server, also across its absence."""

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self

from tests.faults.objects import NAMESPACE
from tests.faults.pod_lives import PodLives
from tests.support.waiting import wait_until

_PATHS = (
    f"/api/v1/namespaces/{NAMESPACE}/pods?watch=1",
    f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?watch=1",
)
_PAUSE = 3.0
_DEATH_SECONDS = 1800.0


class Watches:
    """Threads that record the lives of pods; a context manager."""

    def __init__(self, kubectl: Sequence[str]) -> None:
        """Take the command that runs kubectl."""
        self._kubectl = kubectl
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=[path], name=path) for path in _PATHS]
        self.pods = PodLives()

    def __enter__(self) -> Self:
        """Start to watch."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the watches."""
        with self._lock:
            self._stopping.set()
            for process in self._processes:
                process.terminate()
        for thread in self._threads:
            thread.join()

    def wait_for_deaths(self) -> None:
        """Wait until it is known when each deleted pod died: a busy kubelet reports it minutes later."""
        wait_until(lambda: not self._dying(), "deleted pods do not die", timeout=_DEATH_SECONDS, interval=0.5)

    def _dying(self) -> list[str]:
        with self._lock:
            return [name for name, life in self.pods.lives.items() if life.deleted is not None and not life.died]

    def _follow(self, path: str) -> None:
        """Watch; begin again if the API server ends the watch, or is not there."""
        while (process := self._start(path)) is not None:
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    with self._lock:
                        self.pods.observe(json.loads(line), time.time())
            with self._lock:
                self._processes.remove(process)
            self._stopping.wait(_PAUSE)

    def _start(self, path: str) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            command = [*self._kubectl, "get", "--raw", path]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._processes.append(process)
            return process
