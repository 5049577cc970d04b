"""The servers of a process without a daemon, and what they have told."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from knft.config import Config
from knft.configuration.settings import Settings
from knft.serve.assemble import Serving
from knft.serve.events import Event
from tests.serve.client import refuses
from tests.serve.held_moment import HeldMoment
from tests.serve.node import LOOPBACK, eventually


class Running:
    """A process's servers, and what they have told."""

    def __init__(self, **settings: Any) -> None:
        self.clock = HeldMoment()
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.failed = threading.Event()
        self.eligible: Callable[[], bool] = lambda: True
        self.serving = Serving(
            Settings(Config("node-1"), **settings),
            node_eligible=lambda: self.eligible(),  # noqa: PLW0108 - the test sets another one
            on_event=self.events.append,
            on_hard_failure=self._fail,
            flags={"v": "2", "config": "/etc/knft.yaml"},
            clock=self.clock,
        )

    def _fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        self.failed.set()


class Start:
    """Starts servers, and stops them at the end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, **settings: Any) -> Running:
        running = Running(**settings)
        running.serving.start()
        self._stack.callback(running.serving.stop)
        return running


def served(port: int) -> None:
    eventually(lambda: not refuses(LOOPBACK, port))
