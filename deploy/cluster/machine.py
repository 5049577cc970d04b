"""A machine: a process tree in namespaces of its own, whose process 1 is the supervisor."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from deploy.cluster import cgroups, processes, supervisor
from deploy.cluster.machine_init import SETTINGS, MachineSettings
from deploy.cluster.supervisor import Reply, Request
from deploy.programs.errors import SetupError

_START_SECONDS = 30.0
_STOP_SECONDS = 90.0
"""An API server waits up to a minute for requests that it is serving."""
_INTERVAL = 0.05
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")


class Machine:
    """A machine; its state is in a directory, so that another process can use and end it."""

    def __init__(self, name: str, folder: Path, logs: Path) -> None:
        """Start nothing; ``folder`` is the machine's own."""
        self.name = name
        self.folder = folder
        self._logs = logs

    @property
    def is_running(self) -> bool:
        """Whether the machine was started, and not stopped."""
        return processes.is_running(self._record)

    def start(self, settings: MachineSettings) -> None:
        """Start process 1, and wait until it takes requests; raise SetupError if it does not."""
        if self.is_running:
            msg = f"{self.name} is running"
            raise SetupError(msg)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / supervisor.SOCKET).unlink(missing_ok=True)
        (self.folder / SETTINGS).write_bytes(msgspec.json.encode(settings))
        command = [sys.executable, "-m", "deploy.cluster.machine_init", "boot", str(self.folder)]
        processes.start(command, self.log("init"), self._record)
        self._wait_for_socket()

    def _wait_for_socket(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not (self.folder / supervisor.SOCKET).exists():
            if not self.is_running or time.monotonic() > deadline:
                what = f"{self.name}'s namespaces"
                raise processes.not_started(what, self.log("init"))
            time.sleep(_INTERVAL)

    def kill(self) -> None:
        """Kill all processes at once, as a loss of power does; this ends the namespaces and removes the cgroups."""
        processes.kill(self._record)
        settings = self._settings()
        if settings is not None and settings.cgroups:
            _kill_all(settings.cgroups)
            cgroups.remove(settings.cgroups)

    def _settings(self) -> MachineSettings | None:
        path = self.folder / SETTINGS
        return msgspec.json.decode(path.read_bytes(), type=MachineSettings) if path.exists() else None

    def remove(self) -> None:
        """Kill all processes, and delete the machine's directory."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _record(self) -> Path:
        return self.folder / "process.json"

    def log(self, name: str) -> Path:
        """Return the path of the log of a process."""
        return self._logs / f"{self.name}-{name}.log"

    @property
    def pid(self) -> int:
        """The id of process 1, outside of the machine."""
        return self._ask(Request())[1]

    def command(self, *command: str) -> list[str]:
        """Return a command that runs another one in the machine's namespaces."""
        return ["nsenter", "--target", str(self.pid), *_NAMESPACES, "--", *command]

    def network_command(self, *command: str) -> list[str]:
        """Return a command that runs another one in the machine's network namespace only."""
        return ["nsenter", "--target", str(self.pid), "--net", "--", *command]

    def run(self, *command: str, stdin: str = "") -> str:
        """Run a command in the machine's namespaces; return its output. Raise SetupError if it fails."""
        return processes.run(self.command(*command), f"{command[0]} on {self.name}", stdin)

    def start_process(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        restart: bool = False,
    ) -> None:
        """Start a process that the machine's process 1 supervises; raise SetupError if that fails.

        With ``restart``, process 1 starts it again a second after its end, if that was not ``stop_process``.
        """
        log = str(self.log(name))
        self._request(Request(name, tuple(command), environment or {}, log, restart=restart))

    def stop_process(self, name: str, number: int = signal.SIGTERM) -> int:
        """Send a process a signal, wait for its end, and return its exit status; it is not started again."""
        self._request(Request(name, signal=number, stop=True))
        deadline = time.monotonic() + _STOP_SECONDS
        while (status := self.exit_status(name)) is None:
            if time.monotonic() > deadline:
                msg = f"{name} on {self.name} does not exit after signal {number}; its log is {self.log(name)}"
                raise SetupError(msg)
            time.sleep(_INTERVAL)
        return status

    def signal_process(self, name: str, number: int) -> None:
        """Send a process a signal, such as SIGSTOP; a process that it ends may be started again."""
        self._request(Request(name, signal=number))

    def exit_status(self, name: str) -> int | None:
        """Return the exit status of a process, None while it is running; raise SetupError if it was not started."""
        reply = self._request(Request())
        if name in reply.running:
            return None
        if name not in reply.ended:
            msg = f"{name} was not started on {self.name}"
            raise SetupError(msg)
        return reply.ended[name]

    def running_processes(self) -> list[str]:
        """Return the names of the processes that process 1 started, and that have not ended."""
        return sorted(self._request(Request()).running)

    def _request(self, request: Request) -> Reply:
        reply, _ = self._ask(request)
        if reply.error:
            msg = f"{self.name}: {reply.error}"
            raise SetupError(msg)
        return reply

    def _ask(self, request: Request) -> tuple[Reply, int]:
        """Return the reply, and the id of the process that sent it."""
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(_START_SECONDS)
                    connection.connect(supervisor.address(folder))
                    return _exchange(connection, request)
            finally:
                os.close(folder)
        except OSError as error:
            msg = f"{self.name} does not run: {error}"
            raise SetupError(msg) from error


def _exchange(connection: socket.socket, request: Request) -> tuple[Reply, int]:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    with connection.makefile("rwb") as stream:
        stream.write(msgspec.json.encode(request) + b"\n")
        stream.flush()
        reply = msgspec.json.decode(stream.readline(), type=Reply)
    return reply, int.from_bytes(credentials[:4], sys.byteorder)


def _kill_all(found: Sequence[cgroups.Hierarchy]) -> None:
    """Kill what is left in a machine's cgroups: for example a boot that did not get to its namespaces."""
    for pid in cgroups.processes(found):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def shell(machine: Machine, command: Sequence[str]) -> int:
    """Run a command in a machine with this process's terminal; return its exit status."""
    return subprocess.run(machine.command(*command), check=False).returncode
