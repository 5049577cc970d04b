"""Relays connections from a port of one network namespace's loopback to the same port of another's.

It connects three nodes to one API server, without another interface or address that a proxy would see.
"""

import asyncio
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from tests.support.lab.namespace import Namespace

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 16


class Relay:
    """Listens in some namespaces, and connects to ``target``; a context manager."""

    def __init__(self, sources: Iterable[Namespace], target: Namespace, port: int) -> None:
        """Listen at once; connections are accepted when the block begins."""
        self._target, self._port = target, port
        self._listeners = [_listen(source, port) for source in sources]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Self:
        """Accept connections, in a thread of its own."""
        self._thread.start()
        for listener in self._listeners:
            serving = asyncio.start_server(self._serve, sock=listener)
            asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for listener in self._listeners:
            listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._target.entered():
            upstream = socket.socket()
        upstream.settimeout(0)
        try:
            await self._loop.sock_connect(upstream, (_LOOPBACK, self._port))
            far_reader, far_writer = await asyncio.open_connection(sock=upstream)
        except OSError:
            upstream.close()
            writer.close()
            return
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


def _listen(namespace: Namespace, port: int) -> socket.socket:
    with namespace.entered():
        listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((_LOOPBACK, port))
    listener.listen()
    listener.settimeout(0)
    return listener
