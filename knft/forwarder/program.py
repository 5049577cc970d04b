"""The program of the forwarder's process: ``python -m knft.forwarder.program PARENT SECONDS``.

PARENT is the process that ends it, and SECONDS how often at least it reports.

It reads changes from standard input, and writes reports to standard output. It needs no capability and no file, imports
little, and ends with knft.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from knft.families import Family
from knft.forwarder.connections import ConnectionLimit, PortListener, error_reason
from knft.forwarder.endpoint_choice import EndpointChoice
from knft.kernel import pipe_framing
from knft.kernel.privileges import die_with_parent, drop_all_in_thread
from knft.kernel.process_names import set_process_name
from knft.memory_errors import exit_if_out_of_memory

_ADDRESSES = {Family.IPV4.value: "127.0.0.1", Family.IPV6.value: "::1"}
_LENGTH_BYTES = 8

Key = tuple[str, int]
"""Family and NodePort."""


class Listeners:
    """The open listeners, and the NodePorts that could not be opened."""

    def __init__(self) -> None:
        """Start with none."""
        self._listeners: dict[Key, PortListener] = {}
        self._waiting: dict[Key, tuple[EndpointChoice, str, str]] = {}
        """Ports to open: the endpoints, the Service port, and why the last attempt failed."""
        self._failures = dict.fromkeys(_ADDRESSES, 0)
        self._services: dict[Key, str] = {}
        self.limit = ConnectionLimit(lambda: len(self._listeners))

    async def apply(self, changes: Iterable[list[Any]]) -> None:
        """Close, update and open listeners; retry those that could not be opened."""
        for family, port, service, endpoints, affinity_seconds in changes:
            targets = [(address, number) for address, number in endpoints]
            await self._change((family, port), service, targets, affinity_seconds)
        for key, (choice, service, _) in list(self._waiting.items()):
            self._open(key, choice, service)

    async def _change(self, key: Key, service: str, endpoints: list[tuple[str, int]], affinity_seconds: int) -> None:
        listener = self._listeners.get(key)
        # The affinity of another Service must not go on.
        if listener is not None and endpoints and self._services[key] == service:
            listener.choice.update(endpoints, affinity_seconds)
            return
        if listener is not None:
            await self._listeners.pop(key).close()
        if endpoints:
            self._services[key] = service
            reason = self._waiting[key][2] if key in self._waiting else ""
            self._waiting[key] = (EndpointChoice(endpoints, affinity_seconds), service, reason)
        else:
            self._services.pop(key, None)
            self._waiting.pop(key, None)

    def _open(self, key: Key, choice: EndpointChoice, service: str) -> None:
        family, port = key
        try:
            self._listeners[key] = PortListener(_ADDRESSES[family], port, choice, self.limit)
        except OSError as error:
            self._failures[family] += 1
            self._waiting[key] = (choice, service, error_reason(error))
        else:
            del self._waiting[key]

    def report(self) -> dict[str, Any]:
        """Return what ``Report`` contains."""
        families = [family for family, _ in self._listeners]
        return {
            "listeners": {family: families.count(family) for family in _ADDRESSES},
            "listen_failures": dict(self._failures),
            "failed": [
                {"family": family, "port": port, "service": service, "reason": reason}
                for (family, port), (_, service, reason) in sorted(self._waiting.items(), key=lambda item: item[0])
            ],
            "connections": self.limit.connections,
            "refused": self.limit.refused,
        }


async def _serve(report_seconds: float) -> None:
    """Apply the changes that arrive, and retry the ports that could not be opened, until knft closes the pipe."""
    loop, listeners = asyncio.get_running_loop(), Listeners()
    loop.set_exception_handler(lambda _, context: _send({"problem": _problem_text(context)}))
    arrived: asyncio.Queue[list[list[Any]] | None] = asyncio.Queue()
    receiver = loop.create_task(_receive(arrived))
    while True:
        changes: list[list[Any]] | None = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(report_seconds):
                changes = await arrived.get()
        if changes is None:
            await receiver
            return
        await listeners.apply(changes)
        # Also without a change: knft replaces a process that does not report.
        _send(listeners.report())


async def _receive(arrived: "asyncio.Queue[list[list[Any]] | None]") -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            arrived.put_nowait(json.loads(await reader.readexactly(length)))
    arrived.put_nowait(None)


def _send(report: dict[str, Any]) -> None:
    pipe_framing.send(sys.stdout.fileno(), json.dumps(report).encode())


def _problem_text(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return "".join(traceback.format_exception(error)) if error is not None else str(context.get("message"))


def main(parent: int, report_seconds: float) -> int:
    """Forward connections until knft ends; return the exit status."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    set_process_name("knft-forwarder")
    if os.getppid() != parent:
        return 1
    try:
        # Whoever controls an endpoint must gain nothing from this process.
        drop_all_in_thread()
        asyncio.run(_serve(report_seconds))
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - knft logs it and starts another process
        exit_if_out_of_memory(error)
        _send({"problem": traceback.format_exc()})
        return 1
    return 0


if __name__ == "__main__":
    # Established connections end with knft: nothing could tell which endpoints are still there.
    os._exit(main(int(sys.argv[1]), float(sys.argv[2])))
