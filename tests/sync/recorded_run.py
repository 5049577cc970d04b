"""The daemon of ``knft run`` with its observers, on a library that records commands: no kernel, threads or ports."""

from collections.abc import Callable

from knft.app.run import _conntrack_observers, _observers
from knft.config import Config
from knft.configuration.settings import Settings
from knft.errors import KernelError
from knft.kernel.process import WorkerProcess
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import now
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon


class RecordingLibrary(WorkerProcess):
    """Has no process: accepts all commands of a kernel without tables, and without tables that have an owner.

    ``on_answer`` is called after each of them, as ``on_progress`` of a WorkerProcess.
    """

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self.start_count = 1
        self.commands: list[str] = []
        self._on_answer = on_answer

    def run(self, commands: str, *, terse: bool = False) -> str:
        """Record commands; raise KernelError for those that list a table or need owners."""
        del terse
        if commands.startswith("list ") or "flags owner" in commands:
            msg = "refused by the recorder"
            raise KernelError(msg, "No such file or directory")
        self.commands.append(commands)
        self._on_answer()
        return ""


def recorded_run(config: Config, on_answer: Callable[[], None]) -> tuple[Daemon, RecordingLibrary]:
    """Return the daemon that ``knft run`` assembles with default settings, and the library that it uses.

    ``knft.kernel.table.flags_of`` must be replaced, since it asks the kernel.
    """
    health = ProxyHealth(config.sync_period, now)

    def answered() -> None:
        on_answer()
        health.sync_progressed()

    library = RecordingLibrary(answered)
    monitoring = Monitoring(
        Settings(config),
        health,
        node_eligible=lambda: True,
        on_event=lambda _: None,
        on_fatal_listen_error=lambda _: None,
    )
    observers = _observers(monitoring, _conntrack_observers(config, monitoring.metrics), None, {})
    daemon = live_daemon(config, library, observers, other_subscribers=frozenset)
    monitoring.register_counters(daemon, library)
    return daemon, library
