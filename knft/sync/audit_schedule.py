"""AuditSchedule: when audits begin: once an hour, sooner after one that compared nothing, and on request."""

import logging
import threading
from collections.abc import Callable

from knft.memory_errors import exit_if_out_of_memory

log = logging.getLogger("knft")

AUDIT_SECONDS = 3600.0
"""Time between two comparisons of the kernel's tables with what was committed."""
AUDIT_RETRY_SECONDS = 120.0
"""Delay before an audit that compared nothing is repeated; it doubles with each failure, up to ``AUDIT_SECONDS``."""
PAUSE_SECONDS = 5.0
"""The shortest time between two audits, so that requests cannot keep a CPU busy."""


class AuditSchedule:
    """Runs one audit after the other in a thread of its own. Any thread may request one."""

    def __init__(self, audit: Callable[[], bool]) -> None:
        """``audit`` returns False if it did not compare every table."""
        self._audit = audit
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._begun = 0
        self.ended = 0
        """How many audits have ended, since the start."""

    def request(self) -> int:
        """Return the number of the next audit, which begins as soon as possible; requests before that share it."""
        with self._lock:
            self._wake.set()
            return self._begun + 1

    def stop(self) -> None:
        """End the wait for the next audit, after the event that was passed to ``run`` is set."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Audit until ``stop`` is set and ``stop()`` is called. Needs its own thread."""
        delay, retry_delay = AUDIT_SECONDS, AUDIT_RETRY_SECONDS
        while True:
            self._wake.wait(delay)
            if stop.is_set():
                return
            delay = AUDIT_SECONDS
            try:
                if self._audit_once():
                    retry_delay = AUDIT_RETRY_SECONDS
                else:
                    delay, retry_delay = retry_delay, min(2 * retry_delay, AUDIT_SECONDS)
            except Exception as error:
                exit_if_out_of_memory(error)
                log.exception("the audit failed unexpectedly; please report this")
            if stop.wait(PAUSE_SECONDS):
                return

    def _audit_once(self) -> bool:
        with self._lock:
            self._wake.clear()
            self._begun += 1
        try:
            return self._audit()
        finally:
            self.ended = self._begun
