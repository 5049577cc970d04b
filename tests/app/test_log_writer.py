"""LogWriter: a standard error that blocks delays no thread, and no line is lost silently."""

import os
import pty
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from knft.app import log_writer
from knft.app.log_writer import LogWriter
from tests.support.blocked_pipe import BlockedPipe
from tests.support.waiting import wait_until

LONG = 60.0
"""Seconds after which a test gives up."""


@pytest.fixture
def pipe() -> Iterator[BlockedPipe]:
    """A full pipe."""
    blocked = BlockedPipe()
    yield blocked
    blocked.close()


@pytest.fixture
def empty_pipe(pipe: BlockedPipe) -> BlockedPipe:
    assert pipe.text() == ""
    return pipe


@contextmanager
def running_writer(descriptor: int) -> Iterator[LogWriter]:
    """Yield a writer with a thread; at the end the thread has written everything."""
    writer = LogWriter(descriptor, "dropped {} lines".format)
    writer.start()
    yield writer
    assert writer.flush(LONG)


def test_thread_writes_lines_that_are_due_while_it_waits(empty_pipe: BlockedPipe) -> None:
    """It calls ``before_wait`` again after the returned seconds, and after ``wake``."""
    delays: list[float | None] = [None, 0.0, None]
    asked: list[float | None] = []

    def before_wait() -> float | None:
        asked.append(delays[len(asked)] if len(asked) < len(delays) else None)
        if len(asked) == len(delays):
            writer.write("due")
        return asked[-1]

    writer = LogWriter(empty_pipe.writer, str, before_wait)
    writer.start()
    wait_until(lambda: len(asked) == 1, "the first call")
    writer.wake()
    wait_until(lambda: len(asked) >= 3, "the third call")
    assert writer.flush(LONG)
    assert empty_pipe.text() == "due\n"


@pytest.mark.parametrize("mode", ["thread", "no thread"])
def test_lines_arrive_in_their_order(empty_pipe: BlockedPipe, mode: str) -> None:
    writer = LogWriter(empty_pipe.writer, str)
    if mode == "thread":
        writer.start()
    texts = [f"line {number}" for number in range(100)] + ["x" * 10_000, "surrogate \udc80", "last"]
    for text in texts:
        writer.write(text)
    assert writer.flush(LONG)
    assert empty_pipe.text().splitlines() == [*texts[:-2], r"surrogate \udc80", "last"]
    assert writer.dropped_lines == 0


@pytest.mark.parametrize("mode", ["thread", "no thread"])
def test_full_pipe_drops_and_reports_lines(pipe: BlockedPipe, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``write`` returns although nobody reads; the queued lines come first, then the report, then later lines."""
    monkeypatch.setattr(log_writer, "MAX_QUEUED_BYTES", 1000)
    writer = LogWriter(pipe.writer, "dropped {} lines".format)
    if mode == "thread":
        writer.start()
    for number in range(500):
        writer.write(f"{number:09}")
    assert not writer.flush(0)
    assert writer.dropped_lines == 400
    expected = [f"{number:09}" for number in range(100)] + ["dropped 400 lines", "later"]

    def is_flushed() -> bool:
        pipe.text().splitlines()
        return writer.flush(0.01)

    wait_until(is_flushed, "all lines are written")
    writer.write("later")
    assert writer.flush(LONG)
    assert pipe.text().splitlines() == expected
    assert writer.dropped_lines == 400


def test_slow_reader_gets_one_report(pipe: BlockedPipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first drop no line is accepted until the queue is empty, or every second line would be a report."""
    monkeypatch.setattr(log_writer, "MAX_QUEUED_BYTES", 10_000)
    writer = LogWriter(pipe.writer, "dropped {} lines".format)
    for _ in range(11):
        writer.write("x" * 999)
    for _ in range(2):
        before = len(writer._queue)
        os.read(pipe.reader, os.sysconf("SC_PAGESIZE"))
        writer.write("too early")
        assert 0 < len(writer._queue) < before
    pipe.text()
    assert writer.flush(LONG)
    assert pipe.text().splitlines()[-1] == "dropped 3 lines"
    assert writer.dropped_lines == 3


def test_a_line_that_is_longer_than_the_queue_is_written(
    empty_pipe: BlockedPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MAX_QUEUED_BYTES", 1000)
    writer = LogWriter(empty_pipe.writer, str)
    writer.write("x" * 5000)
    assert empty_pipe.text().splitlines() == ["x" * 5000]


def test_reader_that_is_gone_costs_no_more_than_the_lines(empty_pipe: BlockedPipe) -> None:
    """Python ignores SIGPIPE. The writer tries every line once, and does not retry its report for ever."""
    os.close(empty_pipe.reader)
    with running_writer(empty_pipe.writer) as writer:
        for _ in range(10):
            writer.write("lost")
        assert writer.flush(LONG)
        assert writer.dropped_lines == 10
        assert not writer._queue


def test_closed_descriptor_loses_lines_only() -> None:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.close(descriptor)
    writer = LogWriter(descriptor, str)
    writer.write("lost")
    assert writer.dropped_lines == 1


def test_report_follows_when_a_full_disk_has_space_again(empty_pipe: BlockedPipe) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = LogWriter(descriptor, "dropped {} lines".format)
    writer.write("lost")
    writer.write("lost as well")
    os.dup2(empty_pipe.writer, descriptor)
    writer.write("written")
    os.close(descriptor)
    assert empty_pipe.text().splitlines() == ["written", "dropped 2 lines"]


def test_stopped_terminal_blocks_nothing() -> None:
    """Ctrl-S, XOFF."""
    controller, terminal = pty.openpty()
    termios.tcflow(terminal, termios.TCOOFF)
    writer = LogWriter(terminal, str)
    writer.write("without a thread")
    writer.start()
    writer.write("with a thread")
    assert not writer.flush(0)
    termios.tcflow(terminal, termios.TCOON)
    assert writer.flush(LONG)
    received = b""
    while b"with a thread" not in received:
        received += os.read(controller, 1000)
    assert received.replace(b"\r", b"") == b"without a thread\nwith a thread\n"
    os.close(controller)
    os.close(terminal)


def test_non_blocking_descriptor(pipe: BlockedPipe) -> None:
    """The shell may have made standard error non-blocking."""
    os.set_blocking(pipe.writer, False)
    writer = LogWriter(pipe.writer, str)
    writer.start()
    writer.write("line")
    assert not writer.flush(0)
    wait_until(lambda: "line" in pipe.text().splitlines(), "the line has arrived")


def test_child_process_writes_only_its_own_lines(pipe: BlockedPipe) -> None:
    writer = LogWriter(pipe.writer, str)
    writer.write("of the parent")
    child = os.fork()
    if not child:
        writer.discard()
        writer.write("of the child")
        os._exit(0 if writer.flush(LONG) else 1)
    wait_until(lambda: "of the child" in pipe.text().splitlines(), "the child has written")
    assert os.waitpid(child, 0)[1] == 0
    assert writer.flush(LONG)
    assert pipe.text().splitlines() == ["of the child", "of the parent"]
