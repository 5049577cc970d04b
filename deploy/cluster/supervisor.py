"""Process 1 of a machine: starts processes on request, reaps them, and tells how they ended.

Requests and replies are lines of JSON over a Unix socket, whose directory is outside of the machine's namespaces.
"""

import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

SOCKET = "control.sock"
_SECONDS = 5.0
_RESTART_SECONDS = 1.0


class Request(Struct, frozen=True, omit_defaults=True):
    """A request: starts the process ``name`` if there is a command, sends it a signal if there is one."""

    name: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    log: str = ""
    restart: bool = False
    """Start the process again after its end."""
    signal: int = 0
    stop: bool = False
    """Do not start the process again after its end."""


class Reply(Struct, frozen=True):
    """The processes that run, with their ids in the machine, and the exit statuses of those that ended.

    A negative status is a signal's number, as in the module subprocess.
    """

    running: dict[str, int] = {}
    ended: dict[str, int] = {}
    error: str = ""


class Processes(Struct):
    """The processes by name."""

    running: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    restarted: dict[str, Request] = field(default_factory=dict)
    """The requests of the processes that are started again after their end."""
    due: dict[str, float] = field(default_factory=dict)
    """When to start ended processes again."""

    def answer(self, request: Request) -> Reply:
        """Carry out a request."""
        error = ""
        try:
            if request.stop:
                self.restarted.pop(request.name, None)
                self.due.pop(request.name, None)
            if request.command:
                self._start(request)
            elif request.signal and not (request.stop and request.name in self.ended):
                os.kill(self.running[request.name], request.signal)
        except KeyError:
            error = f"{request.name} is not running"
        except OSError as problem:
            error = f"{request.name}: {problem}"
        return Reply(self.running, self.ended, error)

    def _start(self, request: Request) -> None:
        if request.name in self.running:
            msg = "it is running"
            raise FileExistsError(msg)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.running[request.name] = os.posix_spawnp(
            request.command[0],
            request.command,
            {**os.environ, **request.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, request.log or os.devnull, flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # Python ignores SIGPIPE, and this process ignores the others.
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
        )
        self.ended.pop(request.name, None)
        self.due.pop(request.name, None)
        if request.restart:
            self.restarted[request.name] = request

    def restart_due(self, now: float) -> float | None:
        """Start processes again whose time has come; return the seconds until the next one, None if there is none."""
        for name in [name for name, due in self.due.items() if due <= now]:
            if self.answer(self.restarted[name]).error:
                self.due[name] = now + _RESTART_SECONDS
        return max(0.0, min(self.due.values()) - now) if self.due else None

    def reap(self, now: float) -> None:
        """Reap all processes that have ended, also those that were not started here."""
        names = {pid: name for name, pid in self.running.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in names:
                del self.running[names[pid]]
                self.ended[names[pid]] = os.waitstatus_to_exitcode(status)
                if names[pid] in self.restarted:
                    self.due[names[pid]] = now + _RESTART_SECONDS


def supervise(folder: Path) -> None:
    """Serve requests at ``control.sock`` in a directory, for ever."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    processes, listener = Processes(), _listen(folder)
    children, wakeup = socket.socketpair()
    for each in (children, wakeup):
        each.settimeout(0)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    selector = selectors.DefaultSelector()
    for source in (listener, children):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select(processes.restart_due(time.monotonic())):
            if key.fileobj is children:
                children.recv(4096)
            processes.reap(time.monotonic())
            if key.fileobj is listener:
                _serve(listener, processes)


def address(folder: int) -> str:
    """Return the socket's address by an open file of its directory: the length of an address is limited."""
    return f"/proc/self/fd/{folder}/{SOCKET}"


def _listen(folder: Path) -> socket.socket:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    partial = f"{address(directory)}.partial"
    Path(partial).unlink(missing_ok=True)
    listener.bind(partial)
    listener.listen()
    # Whoever finds the socket can connect to it.
    Path(partial).rename(address(directory))
    os.close(directory)
    return listener


def _serve(listener: socket.socket, processes: Processes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_SECONDS)
        try:
            with connection.makefile("rwb") as stream:
                request = msgspec.json.decode(stream.readline(), type=Request)
                stream.write(msgspec.json.encode(processes.answer(request)) + b"\n")
        except (OSError, msgspec.DecodeError) as error:
            print(f"supervisor: {error}", flush=True)
