"""Starts the HTTP servers without a daemon, and records the events and failures that they report."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from knft.config import Config
from knft.configuration.settings import Settings
from knft.model.events import Event
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from tests.serve.node import LOOPBACK
from tests.support.fake_timestamps import FakeTimestamps
from tests.support.http_client import refuses_connections
from tests.support.waiting import wait_until


class StandaloneServers:
    """The HTTP servers of a process, and the events and failures that they report."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeTimestamps()
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.failed = threading.Event()
        self.is_eligible: Callable[[], bool] = lambda: True
        config = Config("node-1")
        self.monitoring = Monitoring(
            Settings(config, **settings),
            ProxyHealth(config.sync_period, self.clock),
            node_eligible=lambda: self.is_eligible(),  # noqa: PLW0108 - tests replace the attribute
            on_event=self.events.append,
            on_fatal_listen_error=self._record_failure,
            flags={"v": "2", "config": "/etc/knft.yaml"},
            clock=self.clock,
        )

    def _record_failure(self, message: str) -> None:
        self.failures.append(message)
        self.failed.set()


class StartServers:
    """Starts servers, and stops them when the stack closes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, **settings: Any) -> StandaloneServers:
        running = StandaloneServers(**settings)
        running.monitoring.start()
        self._stack.callback(running.monitoring.stop)
        return running


def wait_until_served(port: int) -> None:
    wait_until(lambda: not refuses_connections(LOOPBACK, port))
