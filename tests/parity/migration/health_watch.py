"""Requests health checks of the node from outside all the time, and records for how long they fail."""

import threading
import time
from typing import Self

import urllib3

from tests.cluster.kube_proxy import HEALTH_PORT, get
from tests.parity.migration.services import HEALTH_CHECK_NODE_PORT
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace

_PAUSE = 0.05
PORTS = {"/healthz": HEALTH_PORT, "the health check node port": HEALTH_CHECK_NODE_PORT}


class HealthWatch:
    """Requests ``/healthz`` and a health check node port in a thread; a context manager."""

    def __init__(self, client: Namespace) -> None:
        """Take the namespace of the client."""
        self._client = client
        self._failing = dict.fromkeys(PORTS, 0.0)
        self._is_healthy = dict.fromkeys(PORTS, False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="health", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    @property
    def are_healthy(self) -> bool:
        """Whether the last request to each port succeeded."""
        return all(self._is_healthy.values())

    def take_failing(self) -> dict[str, float]:
        """Return for how many seconds requests to each port have failed since the last call."""
        failing, self._failing = self._failing, dict.fromkeys(PORTS, 0.0)
        return failing

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(_PAUSE):
            for name, port in PORTS.items():
                self._is_healthy[name] = self._succeeds(port)
            now = time.monotonic()
            for name, is_healthy in self._is_healthy.items():
                self._failing[name] += 0.0 if is_healthy else now - last
            last = now

    def _succeeds(self, port: int) -> bool:
        try:
            return get(self._client, port, "/healthz", plan.NODE.lan.ipv4).status == 200
        except urllib3.exceptions.HTTPError:
            return False
