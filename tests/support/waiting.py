"""Waiting for a condition: a test waits as long as a busy machine needs, and no longer than the condition takes."""

import time
from collections.abc import Callable

TIMEOUT = 120.0
"""Seconds after which a test gives up. Nothing is measured by it, so it is long."""


def wait_until(
    condition: Callable[[], bool],
    message: str,
    check: Callable[[], object] = lambda: None,
    *,
    timeout: float = TIMEOUT,
    interval: float = 0.005,
) -> None:
    """Return once the condition holds; fail with the message after ``timeout`` seconds.

    ``check`` is called between two looks at the condition, every ``interval`` seconds. It raises if waiting is useless.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, message
        check()
        time.sleep(interval)
