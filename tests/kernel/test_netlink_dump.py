"""Dumps are repeated if the kernel reports a change during them, and errors are raised."""

import errno
import socket
from collections.abc import Callable
from typing import Self

import pytest

from knft.kernel import netlink_dump
from knft.kernel import netlink_messages as messages

ITEM, REQUEST = 20, 22


def _message(kind: int, flags: int, sequence: int, payload: bytes = b"") -> bytes:
    return messages.request(kind, flags & ~messages.REQUEST, sequence, payload)


class Kernel:
    """The other end of a socket, which answers each request; the real kernel cannot be made to do that."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self.requests = 0
        self._answer = answer
        self._buffers: list[bytes] = []

    def send(self, request: bytes) -> None:
        ((_, _, sequence, _, _),) = messages.messages(request)
        self.requests += 1
        self._buffers.append(self._answer(sequence))

    def recv(self, _: int) -> bytes:
        if not self._buffers:
            raise BlockingIOError(errno.EAGAIN, "try again")
        return self._buffers.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Install = Callable[[Callable[[int], bytes]], Kernel]


@pytest.fixture
def answered_by(monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(answer: Callable[[int], bytes]) -> Kernel:
        kernel = Kernel(answer)
        monkeypatch.setattr(netlink_dump, "open_netlink", lambda *_: kernel)
        return kernel

    return install


def _dump() -> list[bytes]:
    return netlink_dump.dump(socket.NETLINK_ROUTE, REQUEST, b"head", ITEM)


def test_interrupted_dump_is_repeated(answered_by: Install) -> None:
    def answer(sequence: int) -> bytes:
        flags = messages.MULTIPART | (messages.INTERRUPTED if sequence == 1 else 0)
        stale = _message(ITEM, flags, sequence + 1, b"of another request..")
        return (
            stale + _message(ITEM, flags, sequence, b"item%04d" % sequence) + _message(messages.DONE, flags, sequence)
        )

    kernel = answered_by(answer)
    assert _dump() == [b"item0002"]
    assert kernel.requests == 2


def test_last_interrupted_dump_is_used(answered_by: Install) -> None:
    kernel = answered_by(lambda sequence: _message(messages.DONE, messages.INTERRUPTED, sequence, bytes(4)))
    assert _dump() == []
    assert kernel.requests == netlink_dump.ATTEMPTS


@pytest.mark.parametrize("kind", [messages.ERROR, messages.DONE])
def test_refusal_is_an_error(answered_by: Install, kind: int) -> None:
    answered_by(lambda sequence: _message(kind, 0, sequence, (-errno.EPERM).to_bytes(4, "little", signed=True)))
    with pytest.raises(PermissionError, match="Operation not permitted"):
        _dump()


def test_missing_answer_is_a_timeout(answered_by: Install) -> None:
    answered_by(lambda _: _message(messages.DONE, 0, 99))
    with pytest.raises(TimeoutError, match="the kernel does not answer"):
        _dump()
