"""Forwarder: starts the process that forwards connections, and passes changes to it in a thread of its own."""

import contextlib
import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, cast

import msgspec

from knft.decide.loopback import LOOPBACK_ADDRESSES
from knft.families import Family
from knft.forwarder.messages import Change, ListenFailure, Report
from knft.forwarder.ports import ForwardedPort
from knft.forwarder.restart_delay import RestartDelay
from knft.kernel import pipe_framing
from knft.kernel.oom import unprotect_from_oom
from knft.module_command import module_command

log = logging.getLogger("knft")

SEND_SECONDS = 60.0
"""After this time without reading a change, the process is considered hung and replaced."""
REPORT_SECONDS = 10.0
"""How often at least the process reports; it also retries ports that it could not open then."""
CHECK_SECONDS = 10.0
"""How often it is checked that the process reports."""
MISSED_CHECKS = 6
"""After so many checks in a row without a report, the process is considered hung and replaced. Checks are counted, and
not seconds, because knft itself may have been stopped meanwhile."""
_ENVIRONMENT = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""The variables that the process inherits: those that find Python's modules and libraries."""
EXIT_SECONDS = 5.0
"""How long the process may take to exit after its pipes are closed, before it is killed."""

_MAX_ERROR_LINE = 1000

_Key = tuple[Family, int]
_REPORTS = msgspec.json.Decoder(Report)


class Forwarder:
    """Keeps a process that serves NodePorts on loopback addresses; any thread may call ``update`` and read reports."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start no process yet: most clusters with this feature have no NodePort on most nodes."""
        self._clock = clock
        self._delay = RestartDelay()
        self._changed = threading.Condition()
        self._wanted: dict[_Key, ForwardedPort] = {}
        self._pending: dict[_Key, ForwardedPort | None] = {}
        self._is_closed = False
        self._process: _Process | None = None
        self._reported = (dict.fromkeys(Family, 0), Report())
        """The failures that earlier processes have reported, and the last report of the current one. They change
        together, so that no reader sees the failures of a process twice."""
        self.problem = ""
        """Why no process runs that has reported, "" if one does or none is needed."""

    def update(self, family: Family, changes: Mapping[int, ForwardedPort | None]) -> None:
        """Serve the changed NodePorts; returns at once."""
        with self._changed:
            for number, port in changes.items():
                self._pending[family, number] = port
                if port is None:
                    self._wanted.pop((family, number), None)
                else:
                    self._wanted[family, number] = port
            if changes:
                self._changed.notify_all()

    @property
    def pid(self) -> int | None:
        """The id of the process, None if none runs."""
        process = self._process
        return process.pid if process is not None else None

    @property
    def report(self) -> Report:
        """The last report of the current process."""
        return self._reported[1]

    def problem_in(self, family: Family) -> str:
        """Return ``problem`` if a NodePort of the family is to be served, "" otherwise."""
        with self._changed:
            return self.problem if any(wanted is family for wanted, _ in self._wanted) else ""

    def listener_count(self, family: Family) -> int:
        """Return how many NodePorts of a family are served."""
        return self.report.listeners.get(family.value, 0)

    def listen_failures(self, family: Family) -> int:
        """Return how many attempts to open a NodePort have failed since knft's start."""
        earlier, report = self._reported
        return earlier[family] + report.listen_failures.get(family.value, 0)

    def run(self, stop: threading.Event) -> None:
        """Keep the process running until ``stop`` or ``close``. Needs its own thread."""
        while self._wait_for_port():
            started = self._clock()
            problem, has_served = self._run_process()
            if self._is_closed or stop.is_set():
                return
            self.problem = f"the process that serves NodePorts on loopback addresses {problem}"
            delay = self._delay.after(self._clock() - started)
            ended = "its connections have ended, and " if has_served else ""
            log.error("%s; %sanother is started in %g s", self.problem, ended, delay)
            self._forget_report()
            if stop.wait(delay):
                return

    def _run_process(self) -> tuple[str, bool]:
        """Start a process and serve with it until it ends or the forwarder is closed.

        Return why it has ended, and whether it has served.
        """
        try:
            process = _Process(self._receive, self._wake)
        except OSError as error:
            return f"cannot be started: {error}", False
        self._process = process
        try:
            self._serve(process)
        finally:
            self._process = None
            process.close()
        return process.ending, process.reports > 0

    def close(self) -> None:
        """End the process, and ``run``."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_for_port(self) -> bool:
        """Wait until some NodePort is to be served; return False if the forwarder was closed meanwhile."""
        with self._changed:
            if not self._wanted:
                self.problem = ""
            self._changed.wait_for(lambda: self._wanted or self._is_closed)
            self._pending = dict(self._wanted)
            return not self._is_closed

    def _serve(self, process: "_Process") -> None:
        """Pass changes to the process until it ends, hangs or the forwarder is closed."""
        reports = missed = 0
        next_check = self._clock() + CHECK_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed or process.has_ended, CHECK_SECONDS)
                if self._is_closed or process.has_ended:
                    return
                changes, self._pending = self._pending, {}
            if process.reports > reports:
                reports, missed, next_check = process.reports, 0, self._clock() + CHECK_SECONDS
            elif self._clock() >= next_check:
                missed, next_check = missed + 1, self._clock() + CHECK_SECONDS
            if missed >= MISSED_CHECKS:
                process.kill(f"did not report for {MISSED_CHECKS * CHECK_SECONDS:g} s and was killed")
                return
            if changes and not process.send([_change(*key, port) for key, port in changes.items()]):
                return

    def _receive(self, report: Report) -> None:
        """Take a report of the process: log which ports could not be opened, and which now can."""
        if report.problem:
            log.error(
                "the process that serves NodePorts on loopback addresses failed unexpectedly; please report this:\n%s",
                report.problem,
            )
            return
        before = {(each.family, each.port): each for each in self.report.failed}
        now = {(each.family, each.port): each for each in report.failed}
        for key, failure in now.items():
            if before.get(key) != failure:
                _log_failure(failure)
        for key, failure in before.items():
            if key not in now and (Family(key[0]), key[1]) in self._wanted:
                log.info("now serving NodePort %d of Service port %s at %s", key[1], failure.service, _address(key[0]))
        if report.refused > self.report.refused:
            log.warning(
                "refused %d connections to NodePorts on loopback addresses: too many are open (%d)",
                report.refused - self.report.refused, report.connections,
            )  # fmt: skip
        self.problem = ""
        self._reported = (self._reported[0], report)

    def _forget_report(self) -> None:
        self._reported = ({family: self.listen_failures(family) for family in Family}, Report())


def _log_failure(failure: ListenFailure) -> None:
    log.error(
        "cannot serve NodePort %d of Service port %s at %s: %s; other NodePorts are served, and this one is retried",
        failure.port, failure.service, _address(failure.family), failure.reason,
    )  # fmt: skip


def _address(family: str) -> str:
    return LOOPBACK_ADDRESSES[Family(family)]


def _change(family: Family, number: int, port: ForwardedPort | None) -> Change:
    if port is None:
        return (family.value, number, "", (), 0)
    return (family.value, number, port.service, port.endpoints, port.affinity_seconds)


class _Process:
    """One process, used until it ends."""

    def __init__(self, receive: Callable[[Report], None], on_end: Callable[[], None]) -> None:
        command = module_command("knft.forwarder.program", str(os.getpid()), str(REPORT_SECONDS))
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # Not knft's standard error, whose reader could block the process.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=environment
        )
        # Its memory depends on clients: the kernel must not spare it as it spares knft.
        unprotect_from_oom(self._process.pid)
        self._input, self._output = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        os.set_blocking(self._input.fileno(), False)
        self.pid = self._process.pid
        self.has_ended = False
        self.reports = 0
        """How many reports have arrived."""
        self.ending = "has ended"
        self._receive, self._on_end = receive, on_end
        self._reader = threading.Thread(target=self._read, name="forwarder-reports", daemon=True)
        self._reader.start()
        self._error_reader = threading.Thread(target=self._log_errors, name="forwarder-errors", daemon=True)
        self._error_reader.start()

    def _read(self) -> None:
        reader = pipe_framing.MessageReader(self._output.fileno())
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._receive(_REPORTS.decode(reader.receive()))
                    self.reports += 1
        finally:
            # Also after a report that cannot be decoded: without a reader, the process would block.
            self.has_ended = True
            self._on_end()

    def _log_errors(self) -> None:
        """Log what Python prints when the process cannot start or crashes."""
        errors = cast("IO[bytes]", self._process.stderr)
        with errors:
            while line := errors.readline(_MAX_ERROR_LINE):
                text = line.decode("utf-8", "backslashreplace").rstrip()
                log.error("the process that serves NodePorts on loopback addresses printed: %s", text)

    def kill(self, ending: str) -> None:
        """Kill the process, because of ``ending``."""
        self.ending = ending
        self._process.kill()

    def send(self, changes: list[Change]) -> bool:
        """Pass changes to the process; return whether it took them."""
        timeout = pipe_framing.Timeout(SEND_SECONDS, SEND_SECONDS, lambda: None)
        try:
            pipe_framing.send(self._input.fileno(), json.dumps(changes).encode(), timeout)
        except BrokenPipeError:
            return False
        except TimeoutError:
            self.kill(f"did not read changes for {SEND_SECONDS:g} s and was killed")
            return False
        return True

    def close(self) -> None:
        """End the process and wait for its exit."""
        self._input.close()
        try:
            status = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        self._error_reader.join()
        self._output.close()
        if self.ending == "has ended":
            self.ending = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
