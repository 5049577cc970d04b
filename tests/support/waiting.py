"""Waits for a condition, with a timeout that is long enough for a busy machine."""

import time
from collections.abc import Callable

TIMEOUT = 120.0
"""Seconds after which a test gives up. Nothing is measured by it, so it is long."""


def wait_until(
    condition: Callable[[], object],
    message: str | Callable[[], object] = "the condition did not become true",
    check: Callable[[], object] = lambda: None,
    *,
    timeout: float = TIMEOUT,
    interval: float = 0.005,
    growth: float = 1.0,
) -> None:
    """Return once the condition holds; fail with the message, or the result of its call, after ``timeout`` seconds.

    ``check`` is called every ``interval`` seconds while the condition does not hold. It raises if waiting is useless.
    The interval grows by a factor each time: a condition that changes something may keep others from ending.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, message() if callable(message) else message
        check()
        time.sleep(interval)
        interval *= growth
