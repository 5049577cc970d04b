"""Runs a credential plugin as a process: in a session of its own, without a terminal, and with limited output."""

import contextlib
import os
import selectors
import signal
import subprocess
from typing import IO, cast

from msgspec import Struct

from knft.kernel.oom import unprotect_from_oom

MAX_OUTPUT_BYTES = 1 << 20
"""The maximum size of an ExecCredential; a certificate with its key has a few kilobytes."""
MAX_ERROR_BYTES = 64 << 10
"""How much of the standard error is kept; the rest is discarded."""
MAX_DISCARDED_BYTES = 16 << 20
"""A plugin that prints more than this to its standard error prints without end; reading it would cost CPU."""
_READ_BYTES = 64 << 10


class FinishedProcess(Struct, frozen=True):
    """The exit status and the output of a plugin process."""

    status: int
    output: bytes
    errors: bytes


def run_process(command: list[str], folder: str, environment: dict[str, str]) -> FinishedProcess:
    """Run a program and wait for its end; raise OSError if it cannot be started, ValueError if it prints too much."""
    # A session is a process group too, so that signals reach all processes of the plugin, and Ctrl-C reaches none.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder or None,
        env=environment,
        start_new_session=True,
    ) as process:
        # The kernel shall kill a plugin that uses too much memory, and not another process of the node.
        unprotect_from_oom(process.pid)
        try:
            output, errors = _read(process)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return FinishedProcess(process.returncode, output, errors)


def _read(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    output, errors, discarded = bytearray(), bytearray(), 0
    with selectors.DefaultSelector() as selector:
        for stream, buffer in ((process.stdout, output), (process.stderr, errors)):
            selector.register(cast("IO[bytes]", stream), selectors.EVENT_READ, buffer)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data is output:
                    output += data
                else:
                    kept = data[: MAX_ERROR_BYTES - len(errors)]
                    errors += kept
                    discarded += len(data) - len(kept)
            for size, limit in ((len(output), MAX_OUTPUT_BYTES), (discarded, MAX_DISCARDED_BYTES)):
                if size > limit:
                    msg = f"it printed more than {limit} bytes"
                    raise ValueError(msg)
    return bytes(output), bytes(errors)
