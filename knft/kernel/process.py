"""WorkerProcess: runs libnftables in a worker process, so that a crash of libnftables does not stop knft.

See docs/design/worker-process.md.
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Self

from knft.errors import KernelError, LibraryDiedError, UnavailableError, UnsupportedError
from knft.kernel import pipe_framing
from knft.kernel.worker_messages import (
    Answer,
    Commands,
    ElementDump,
    Elements,
    Hello,
    SetPart,
    decode_answer,
    encode_request,
)
from knft.module_command import module_command

log = logging.getLogger("knft")

ANSWER_TIMEOUT_SECONDS = 300.0
"""After this time without an answer the worker is considered hung. 100 000 endpoints take a second or two."""

ANSWER_WARNING_SECONDS = 10.0
"""After this time without an answer a warning is logged."""

EXIT_TIMEOUT_SECONDS = 10.0
"""How long a worker may take to exit after its pipes are closed, before it is killed."""

RECYCLE_BYTES = 1 << 20
"""A worker is replaced after commands or answers of this size, since libnftables 1.0.6 keeps fifty times their size
in memory."""

MAX_LOGGED_CHARACTERS = 4000
"""How much of what a worker writes to its standard error, such as a traceback, is logged at once."""
_MAX_READ_BYTES = 1 << 16


def _ignore(_: SetPart) -> None:
    """Ignore a part: only an ElementDump has answers with elements."""


class WorkerProcess:
    """Runs nft commands like Library, for one caller at a time; other callers wait.

    If a worker dies during a call, that call raises LibraryDiedError, and the next call uses a new worker.
    """

    def __init__(
        self,
        on_port_ids: Callable[[frozenset[int]], None] = lambda _: None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a worker without waiting for it.

        ``on_port_ids`` is called with the port ids of the worker's netlink sockets before its first command, and with
        an empty set when the worker is gone; ``on_progress`` when a call has received a part of its answer, such as
        some elements of a set.
        """
        self._lock = threading.Lock()
        self._on_port_ids = on_port_ids
        self._on_progress = on_progress
        self.start_count = 0
        """How many workers have been started."""
        self._worker: _Worker | None = self._start()

    def _start(self) -> "_Worker":
        worker = _Worker(self._on_port_ids)
        self.start_count += 1
        return worker

    def _start_next(self) -> None:
        """Start the next worker; if that fails, the next call tries again and raises the error."""
        self._worker = None
        with contextlib.suppress(KernelError):
            self._worker = self._start()

    def run(self, commands: str, *, terse: bool = False) -> str:
        """Run commands as one transaction; return what the library printed. With ``terse``, listings have no elements.

        Raises KernelError if the kernel or the library refused them, and then nothing has changed; LibraryDiedError if
        the worker died or hung, and then it is unknown whether they took effect; UnsupportedError without libnftables.
        """
        return self._request(Commands(commands, terse), len(commands), _ignore)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        """Read the elements of sets and maps; see ``knft.kernel.set_elements``.

        Raises KernelError if the kernel refuses, LibraryDiedError if the worker died or hung.
        """
        self._request(ElementDump(family, table, tuple(names)), 0, receive)

    def _request(self, request: Commands | ElementDump, size: int, receive: Callable[[SetPart], None]) -> str:
        """Send a request of about ``size`` bytes; return the library's output."""
        with self._lock:
            worker = self._worker or self._start()
            self._worker = None
            try:
                answer = worker.request(request, self._reporting_progress(receive))
                self._on_progress()
            except BaseException as error:
                self._on_port_ids(frozenset())
                if isinstance(error, LibraryDiedError):
                    self._start_next()
                raise
            self._worker = worker
            if size + len(answer.output) >= RECYCLE_BYTES:
                self._on_port_ids(frozenset())
                worker.close()
                self._start_next()
        if answer.error:
            raise KernelError(answer.error, answer.detail)
        return answer.output

    def _reporting_progress(self, receive: Callable[[SetPart], None]) -> Callable[[SetPart], None]:
        def receive_part(part: SetPart) -> None:
            receive(part)
            self._on_progress()

        return receive_part

    def replace_if_died_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for an idle worker to exit; if it did, start another and return True.

        Returns False at once if there is no worker. A worker that dies during a call is reported by that call.
        """
        worker = self._worker
        if worker is None or not worker.has_exited_within(seconds):
            return False
        with self._lock:
            if self._worker is not worker:
                return False
            self._on_port_ids(frozenset())
            worker.close()
            self._start_next()
        return True

    @property
    def pid(self) -> int | None:
        """The process id of the worker for the next call; None if that call will start one."""
        worker = self._worker
        return worker.pid if worker is not None else None

    def close(self) -> None:
        """Stop the worker; a later call starts another."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
            self._worker = None

    def __enter__(self) -> Self:
        """Return the WorkerProcess."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the worker."""
        self.close()


def _unexpected(message: Hello | Elements | Answer) -> ValueError:
    return ValueError(f"unexpected message of the worker process: {type(message).__name__}")


class _Worker:
    """One worker process, used until it exits."""

    def __init__(self, on_port_ids: Callable[[frozenset[int]], None]) -> None:
        self._on_port_ids = on_port_ids
        with contextlib.ExitStack() as worker_ends, contextlib.ExitStack() as daemon_ends:
            try:
                requests, self._requests = _pipe(worker_ends, daemon_ends)
                answers_end, answers = _pipe(daemon_ends, worker_ends)
                # Not the daemon's standard error, whose reader could block the worker. When this pipe is full, the
                # worker's output is lost instead.
                self._output, output = _pipe(daemon_ends, worker_ends)
                os.set_blocking(self._output, False)
                os.set_blocking(output, False)
                arguments = [str(number) for number in (requests, answers, os.getpid())]
                command = module_command("knft.kernel.worker", *arguments)
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(requests, answers)
                )
            except OSError as error:
                msg = f"cannot start the libnftables worker process: {error}"
                raise UnavailableError(msg) from error
            daemon_ends.pop_all()
        os.set_blocking(self._requests, False)
        self._answers = pipe_framing.MessageReader(answers_end)
        pipes = (self._requests, answers_end, self._output)
        self._finalizer = weakref.finalize(self, _shut_down, self._process, *pipes)
        self._has_hello = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, request: Commands | ElementDump, receive: Callable[[SetPart], None]) -> Answer:
        """Send a request, pass elements to ``receive`` and return the answer; if this raises, the worker has exited."""
        try:
            if not self._has_hello:
                self._receive_hello()
            pipe_framing.send(self._requests, encode_request(request), self._timeout())
            return self._receive_answer(receive)
        except TimeoutError as error:
            self._kill()
            msg = f"libnftables did not answer within {ANSWER_TIMEOUT_SECONDS:g} s and was killed"
            raise LibraryDiedError(msg) from error
        except (EOFError, BrokenPipeError) as error:
            self.close()
            msg = f"the libnftables worker process {_exit_text(self._process.returncode)}"
            raise LibraryDiedError(msg) from error
        except BaseException:
            # The answer may still arrive; it must not be read as the answer to the next request.
            self._kill()
            raise

    def _receive_answer(self, receive: Callable[[SetPart], None]) -> Answer:
        answer = self._receive()
        while isinstance(answer, Elements):
            for part in answer.parts:
                receive(part)
            answer = self._receive()
        self._log_output()
        if isinstance(answer, Hello):
            raise _unexpected(answer)
        return answer

    def _receive(self) -> Hello | Elements | Answer:
        return decode_answer(self._answers.receive(self._timeout()))

    def _timeout(self) -> pipe_framing.Timeout:
        return pipe_framing.Timeout(ANSWER_TIMEOUT_SECONDS, ANSWER_WARNING_SECONDS, self._warn_about_no_answer)

    def _warn_about_no_answer(self) -> None:
        text = "libnftables has not answered for %g s; waiting, and replacing its worker process (pid %d) after %g s"
        log.warning(text, ANSWER_WARNING_SECONDS, self.pid, ANSWER_TIMEOUT_SECONDS)

    def _kill(self) -> None:
        """Kill the worker. When this returns, its sockets are closed, and it owns no table any more."""
        self._process.kill()
        self.close()

    def _receive_hello(self) -> None:
        hello = self._receive()
        if not isinstance(hello, Hello):
            raise _unexpected(hello)
        if hello.error:
            raise UnsupportedError(hello.error)
        self._on_port_ids(hello.port_ids)
        self._has_hello = True

    def has_exited_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the worker to exit; return whether it has."""
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

    def _log_output(self) -> None:
        """Log what the worker has written to its standard error."""
        try:
            output = os.read(self._output, _MAX_READ_BYTES)
        except BlockingIOError:
            return
        if output:
            log.warning("the libnftables worker process printed: %s", _printable(output))

    def close(self) -> None:
        """Stop the worker and wait for its exit."""
        if self._finalizer.alive:
            self._log_output()
        self._finalizer()


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Return both ends of a new pipe; the exit stacks close them."""
    reader, writer = os.pipe()
    reading.callback(os.close, reader)
    writing.callback(os.close, writer)
    return reader, writer


def _shut_down(process: "subprocess.Popen[bytes]", *pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)
    try:
        process.wait(EXIT_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _exit_text(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def _printable(output: bytes) -> str:
    text = output.decode(errors="replace").strip()[:MAX_LOGGED_CHARACTERS]
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)
