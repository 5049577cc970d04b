"""libnftables in a process of its own: ``python -m knft.kernel.worker``; LibraryProcess is the other end.

The library can crash, on its own bugs or on what another version of it made (1.0.6 lists no set that 1.1.3 made), or
because its socket is the 1024th open file or later (it waits with select()); and it keeps the memory of the largest
transaction. The daemon must neither die with it nor grow.
"""

import contextlib
import os
import signal
import sys

import msgspec
from msgspec import Struct

from knft.errors import KernelError, UnsupportedError
from knft.kernel import frames
from knft.kernel.libnftables import Library
from knft.kernel.netlink_ports import netlink_ports
from knft.kernel.privileges import end_with_parent, keep_net_admin


class Hello(Struct):
    """What the process says first: the port ids of its netlink sockets; or why it is no use, if it is none."""

    ports: frozenset[int] = frozenset()
    unusable: str = ""


class Answer(Struct):
    """What became of one text of commands; ``refusal`` is the first line of the library's words, ``detail`` all."""

    output: str = ""
    refusal: str = ""
    detail: str = ""


def main(requests: int, answers: int, parent: int) -> int:
    """Carry out what comes, until the parent closes the pipe; return the exit status."""
    # Interrupts are the daemon's to handle, and a daemon that was killed must not have one more change made for it.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent:
        return 1
    # Started by root it would have whatever the bounding set allows. Without CAP_NET_ADMIN the library says so itself.
    with contextlib.suppress(UnsupportedError):
        keep_net_admin()
    with contextlib.suppress(EOFError, BrokenPipeError):
        return _serve(requests, answers)
    return 0


def _serve(requests: int, answers: int) -> int:
    try:
        library = Library()
    except UnsupportedError as error:
        frames.send(answers, msgspec.msgpack.encode(Hello(unusable=str(error))))
        return 1
    frames.send(answers, msgspec.msgpack.encode(Hello(netlink_ports())))
    while True:
        commands = frames.receive(requests).decode()
        frames.send(answers, msgspec.msgpack.encode(_answer(library, commands)))


def _answer(library: Library, commands: str) -> Answer:
    try:
        return Answer(output=library.run(commands))
    except KernelError as error:
        return Answer(refusal=str(error), detail=error.detail)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
