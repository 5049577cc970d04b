"""ServiceManager: tells systemd that knft is ready, that it is alive, and that it stops.

See docs/operations/systemd.md#readiness. The rules are those of the HTTP health checks: ready as ``/readyz``, alive as
``/livez``. A thread of its own sends notifications, so a process that is stopped or whose interpreter hangs sends none.
"""

import faulthandler
import logging
import threading

from knft.app.notify_socket import NotifySettings, NotifySocket
from knft.app.shutdown import Shutdown
from knft.families import Family
from knft.serve.proxy_health import ProxyHealth
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

MAX_PERIOD_SECONDS = 10.0
"""Longest time between two notifications."""
WATCHDOG_FRACTION = 4
"""How many notifications there are in the watchdog's period; sd_watchdog_enabled(3) recommends two or more."""
START_EXTENSION_SECONDS = 60.0
"""By how long each notification before the first sync extends the time that a start may take."""
READY_STATUS = "the rules of all Services are in force"
STOPPING_STATUS = "stopping; the rules stay in force"
_CONSEQUENCES = {
    False: "which ends the start when its time is over",
    True: "whose watchdog then restarts knft",
}
"""What the service manager does without reports, by whether knft was ready."""


class ServiceManager(SyncObserver):
    """Notifies systemd. As an observer of syncs it sends READY=1 at once after the first sync."""

    def __init__(self, settings: NotifySettings) -> None:
        """Send nothing yet."""
        self._socket = NotifySocket(settings.address)
        self._has_watchdog = settings.watchdog_seconds is not None
        watchdog = settings.watchdog_seconds or MAX_PERIOD_SECONDS * WATCHDOG_FRACTION
        self._period = min(MAX_PERIOD_SECONDS, watchdog / WATCHDOG_FRACTION)
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_ready = False
        self._was_alive = True
        self._status = ""

    def start(self, health: ProxyHealth, shutdown: Shutdown) -> None:
        """Send notifications about ``health`` until the shutdown, in a thread."""
        if self._has_watchdog:
            # The watchdog's SIGABRT then prints the stack of each thread.
            faulthandler.enable()
        shutdown.start_thread("service-manager", lambda: self._run(health, shutdown.stop))

    def _run(self, health: ProxyHealth, stop: threading.Event) -> None:
        while not stop.is_set():
            with self._lock:
                if not self._is_stopped:
                    self.notify(health)
            self._woken.wait(self._period)
            self._woken.clear()

    def notify(self, health: ProxyHealth) -> None:
        """Send what systemd has to know now; a notification that cannot be sent is repeated with the next one."""
        problem, is_alive = health.readiness_problem(), health.is_alive()
        is_ready, status = self._is_ready or not problem, problem or READY_STATUS
        assignments = ["READY=1"] if is_ready and not self._is_ready else []
        if is_alive:
            microseconds = int(START_EXTENSION_SECONDS * 1e6)
            assignments.append("WATCHDOG=1" if is_ready else f"EXTEND_TIMEOUT_USEC={microseconds}")
        elif self._was_alive:
            log.error("%s; meanwhile knft does not report to the service manager, %s", problem, _CONSEQUENCES[is_ready])
        self._was_alive = is_alive
        if status != self._status:
            assignments.append(f"STATUS={status}")
        if assignments and self._socket.send(*assignments):
            self._is_ready, self._status = is_ready, status

    def stop(self) -> None:
        """Report that knft stops; nothing follows."""
        with self._lock:
            self._is_stopped = True
            self._socket.send("STOPPING=1", f"STATUS={STOPPING_STATUS}")
            self._socket.close()

    def _wake_before_ready(self) -> None:
        if not self._is_ready:
            self._woken.set()

    def loop_started(self, _family: Family) -> None:
        """Report that the first sync begins."""
        self._wake_before_ready()

    def sync_succeeded(self, _report: SyncReport, _state: ServiceState) -> None:
        """Report the first success."""
        self._wake_before_ready()

    def table_left(self, _family: Family) -> None:
        """Report the first success: another process programs the family."""
        self._wake_before_ready()
