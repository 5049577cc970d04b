"""Forwards a port of this machine's loopback to the API server, which is in a network namespace.

The process listens before it enters the namespace: a socket stays in the one where it was made. So the machine needs
neither an interface nor a route nor a sysctl. ``python -m deploy.cluster.forwarder PORT PID HOST PORT`` serves until it
is killed.
"""

import asyncio
import ctypes
import os
import socket
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from functools import partial
from pathlib import Path

LOOPBACK = "127.0.0.1"
_CLONE_NEWNET = 0x40000000
_BYTES = 1 << 16


def free_port() -> int:
    """Return a port that no process uses at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Forward connections until the process is killed."""
    port, pid, host, target = sys.argv[1:5]
    listener = socket.create_server((LOOPBACK, int(port)))
    _enter_network(int(pid))
    asyncio.run(_serve(listener, host, int(target)))


def _enter_network(pid: int) -> None:
    """Enter a process's network namespace; os.setns came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    server = await asyncio.start_server(partial(_forward, host, port), sock=listener)
    await server.serve_forever()


async def _forward(host: str, port: int, client_reader: StreamReader, client_writer: StreamWriter) -> None:
    try:
        server_reader, server_writer = await asyncio.open_connection(host, port)
    except OSError:
        client_writer.close()
        return
    await asyncio.gather(_copy(client_reader, server_writer), _copy(server_reader, client_writer))


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


if __name__ == "__main__":
    main()
