"""Messages over a pipe arrive as they were sent, however they are split."""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from knft.kernel.pipe_framing import MessageReader, Timeout, send


def _no_warning() -> None:
    pytest.fail("unexpected warning")


SOON = Timeout(0.05, 60.0, _no_warning)
LATER = Timeout(60.0, 60.0, _no_warning)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the reading and the writing end; the test may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_messages_that_were_written_together_are_received_one_by_one(pipe: tuple[int, int]) -> None:
    reader = MessageReader(pipe[0])
    for message in (b"first", b"", b"third"):
        send(pipe[1], message)
    assert [reader.receive(LATER) for _ in range(3)] == [b"first", b"", b"third"]


def test_message_that_arrives_in_pieces_is_received_whole(pipe: tuple[int, int]) -> None:
    """It is larger than the pipe's buffer."""
    message = os.urandom(1 << 18)
    writer = threading.Thread(target=send, args=[pipe[1], message])
    writer.start()
    reader = MessageReader(pipe[0])
    assert reader.receive() == message
    writer.join()
    send(pipe[1], b"next")
    assert reader.receive() == b"next"


def test_message_that_is_not_complete_in_time_is_an_error(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], struct.pack("!Q", 10) + b"12345")
    with pytest.raises(TimeoutError):
        MessageReader(pipe[0]).receive(SOON)


def test_end_of_the_pipe_in_a_message_is_an_error(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], struct.pack("!Q", 10) + b"12345")
    os.close(pipe[1])
    with pytest.raises(EOFError):
        MessageReader(pipe[0]).receive(LATER)


def test_message_that_is_not_read_in_time_is_an_error(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    with pytest.raises(TimeoutError):
        send(pipe[1], bytes(1 << 20), SOON)


def test_full_pipe_is_an_error_without_a_time_to_wait(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    with pytest.raises(BlockingIOError):
        send(pipe[1], bytes(1 << 20))


def test_slow_reader_gets_the_whole_message(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    message = os.urandom(1 << 20)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append(MessageReader(pipe[0]).receive()))
    thread.start()
    send(pipe[1], message, LATER)
    thread.join()
    assert received == [message]
