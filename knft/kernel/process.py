"""LibraryProcess: libnftables as one call, carried out by a process that may die without harm."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Self

import msgspec

from knft.errors import KernelError, LibraryDiedError, UnavailableError, UnsupportedError
from knft.kernel import frames
from knft.kernel.worker import Answer, Hello

HUNG_SECONDS = 300.0
"""When the library counts as hung; 10 000 Services with 100 000 endpoints take a second or two."""

ENDING_SECONDS = 10.0
"""How long a process may take to end once nobody asks it any more."""

RECYCLE_BYTES = 1 << 20
"""After commands or answers of this size the process is replaced by a new one: the library keeps the memory they took,
fifty times as much (libnftables 1.0.6)."""


class LibraryProcess:
    """Carries out nft commands like Library; one caller at a time, the others wait.

    A process that dies is reported by the call that it dies in, and the next call has a new one.
    """

    def __init__(self, tell_ports: Callable[[frozenset[int]], None] = lambda _: None) -> None:
        """Start a process, which is not waited for.

        ``tell_ports`` is told the port ids of its netlink sockets, before it carries out a command for anybody, and
        that there are none when it is gone.
        """
        self._lock = threading.Lock()
        self._tell_ports = tell_ports
        self.started = 0
        """How many processes there have been."""
        self._worker: _Worker | None = self._start()

    def _start(self) -> "_Worker":
        worker = _Worker(self._tell_ports)
        self.started += 1
        return worker

    def _start_ahead(self) -> None:
        """Start the next process, if that is possible now: otherwise the next call tries, and says why not."""
        self._worker = None
        with contextlib.suppress(KernelError):
            self._worker = self._start()

    def run(self, commands: str) -> str:
        """Carry out commands as one transaction; return what the library printed.

        Raises KernelError where the kernel or the library refused them, and then nothing has changed; LibraryDiedError,
        where the process died or hung, and then they may have been carried out or not; UnsupportedError where there
        is no library.
        """
        with self._lock:
            worker = self._worker or self._start()
            self._worker = None
            try:
                answer = worker.ask(commands)
            except BaseException as error:
                self._tell_ports(frozenset())
                if isinstance(error, LibraryDiedError):
                    self._start_ahead()
                raise
            self._worker = worker
            if len(commands) + len(answer.output) >= RECYCLE_BYTES:
                self._tell_ports(frozenset())
                worker.close()
                self._start_ahead()
        if answer.refusal:
            raise KernelError(answer.refusal, answer.detail)
        return answer.output

    def dies_within(self, seconds: float) -> bool:
        """Wait so long for the process to die while nobody asks it; return whether it did, and start another then.

        False at once where there is none at the moment. One that dies of a call is reported by that.
        """
        worker = self._worker
        if worker is None or not worker.ends_within(seconds):
            return False
        with self._lock:
            if self._worker is not worker:
                return False
            self._tell_ports(frozenset())
            worker.close()
            self._start_ahead()
        return True

    @property
    def pid(self) -> int | None:
        """The process that the next call goes to, None where it will be a new one."""
        worker = self._worker
        return worker.pid if worker is not None else None

    def close(self) -> None:
        """End the process; a call after that starts another."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
            self._worker = None

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.close()


class _Worker:
    """One process; it is used until it dies."""

    def __init__(self, tell_ports: Callable[[frozenset[int]], None]) -> None:
        self._tell_ports = tell_ports
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            try:
                requests, self._requests = _pipe(theirs, ours)
                self._answers, answers = _pipe(ours, theirs)
                arguments = [str(number) for number in (requests, answers, os.getpid())]
                command = [sys.executable, "-P", "-m", "knft.kernel.worker", *arguments]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(requests, answers))
            except OSError as error:
                msg = f"the process for libnftables cannot be started: {error}"
                raise UnavailableError(msg) from error
            ours.pop_all()
        os.set_blocking(self._requests, False)
        self._finalizer = weakref.finalize(self, _end, self._process, self._requests, self._answers)
        self._greeted = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, commands: str) -> Answer:
        """Have commands carried out; where that is not answered, the process is gone afterwards."""
        try:
            if not self._greeted:
                self._greet()
            frames.send(self._requests, commands.encode(), HUNG_SECONDS)
            return msgspec.msgpack.decode(frames.receive(self._answers, HUNG_SECONDS), type=Answer)
        except TimeoutError as error:
            self._kill()
            msg = f"libnftables did not answer within {HUNG_SECONDS:g} s, and was killed"
            raise LibraryDiedError(msg) from error
        except (EOFError, BrokenPipeError) as error:
            self.close()
            msg = f"the process of libnftables {_fate(self._process.returncode)}"
            raise LibraryDiedError(msg) from error
        except BaseException:
            # The answer is still to come, and must not be taken for that of another question.
            self._kill()
            raise

    def _kill(self) -> None:
        """End the process now; when this returns, nothing of it is left that owns a table."""
        self._process.kill()
        self.close()

    def _greet(self) -> None:
        hello = msgspec.msgpack.decode(frames.receive(self._answers, HUNG_SECONDS), type=Hello)
        if hello.unusable:
            raise UnsupportedError(hello.unusable)
        self._tell_ports(hello.ports)
        self._greeted = True

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for the process to end; return whether it has."""
        try:
            process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(process)

    def close(self) -> None:
        """End the process, and wait for it."""
        self._finalizer()


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Return the two ends of a new pipe, which these close."""
    reader, writer = os.pipe()
    reading.callback(os.close, reader)
    writing.callback(os.close, writer)
    return reader, writer


def _end(process: "subprocess.Popen[bytes]", *pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _fate(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
