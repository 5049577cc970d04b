# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The program of the worker process: ``python -m knft.kernel.worker`` runs libnftables for a WorkerProcess.

libnftables may crash: on its own bugs, on sets made by a newer libnftables (1.0.6 on those of 1.1.3), or if its socket
is the 1024th open file or later, since it uses select(). It also keeps the memory of its largest transaction. In a
separate process, neither affects the daemon.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable

from knft.errors import KernelError, UnsupportedError
from knft.heap import trim_heap
from knft.kernel import pipe_framing
from knft.kernel.libnftables import Library
from knft.kernel.netlink_port_ids import netlink_port_ids
from knft.kernel.privileges import die_with_parent, keep_net_admin
from knft.kernel.process_names import set_process_name
from knft.kernel.worker_messages import (
    Answer,
    Commands,
    ElementDump,
    Elements,
    Hello,
    SetPart,
    decode_request,
    encode_answer,
)

MIN_ELEMENT_BYTES = 16 * 1024
"""The parts of sets are sent when they have this size: the kernel's largest buffers alone, small ones together."""

TRIM_BYTES = 16 * 1024
"""After commands or an answer of this size, the heap is trimmed once the process is idle: libnftables 1.0.6 allocates
fifty times their size. Most changes are smaller."""

IDLE_MILLISECONDS = 500
"""How long no request arrives before the process counts as idle. A large sync sends several requests."""


def main(requests: int, answers: int, parent: int) -> int:
    """Answer each request until the parent closes the pipe; return the exit status."""
    # The daemon handles interrupts. If it is killed, this process must not make another change for it.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    # Notifications of nf_tables carry the name: without this, another program would see "python".
    set_process_name("knft")
    if os.getppid() != parent:
        return 1
    # A child process of root gets all capabilities of the bounding set. libnftables itself reports a missing
    # CAP_NET_ADMIN.
    with contextlib.suppress(UnsupportedError):
        keep_net_admin()
    with contextlib.suppress(EOFError, BrokenPipeError):
        return _serve(requests, answers)
    return 0


def _serve(requests: int, answers: int) -> int:
    try:
        library = Library()
    except UnsupportedError as error:
        pipe_framing.send(answers, encode_answer(Hello(error=str(error))))
        return 1
    pipe_framing.send(answers, encode_answer(Hello(netlink_port_ids())))

    def send(message: Elements | Answer) -> None:
        pipe_framing.send(answers, encode_answer(message))

    reader = pipe_framing.MessageReader(requests)
    is_grown = False
    while True:
        if is_grown and not _has_input(requests, IDLE_MILLISECONDS):
            trim_heap()
            is_grown = False
        request = decode_request(reader.receive())
        try:
            match request:
                case Commands(text, terse):
                    is_grown |= len(text) >= TRIM_BYTES
                    output = library.run(text, terse=terse)
                    is_grown |= len(output) >= TRIM_BYTES
                    send(Answer(output=output))
                case ElementDump(family, table, names):
                    parts = _PartSender(send)
                    library.dump_elements(family, table, names, parts.add)
                    parts.send()
                    send(Answer())
        except KernelError as error:
            send(Answer(error=str(error), detail=error.detail))


def _has_input(descriptor: int, milliseconds: int) -> bool:
    """Wait for input or for the end of the pipe; return whether it came in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))


class _PartSender:
    """Sends parts of sets; each message takes two system calls on either side, and most sets are empty."""

    def __init__(self, send: Callable[[Elements], None]) -> None:
        self._send = send
        self._parts: list[SetPart] = []
        self._bytes = 0

    def add(self, part: SetPart) -> None:
        self._parts.append(part)
        self._bytes += len(part.buffer)
        if self._bytes >= MIN_ELEMENT_BYTES:
            self.send()

    def send(self) -> None:
        """Send the parts that are left."""
        if self._parts:
            self._send(Elements(tuple(self._parts)))
        self._parts, self._bytes = [], 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
