"""The standard streams of a command: closed ones, and pipes whose reader has exited."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

_STATUS_OF_SIGNAL = 128
"""A shell reports the death by a signal as this plus the signal's number."""


def replace_closed_streams() -> None:
    """Reserve the descriptors of closed standard streams: Python sets the streams to None, and reuses the descriptors.

    Writing to a closed standard output is an error, because the user loses what the command prints; messages to a
    closed standard error are lost. ``sys.stdin`` stays None: reading from it is an error.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process exits


def discard_output() -> None:
    """Discard buffered output: Python 3.13 would write it again at exit, and exit with status 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def exit_by_sigpipe() -> NoReturn:
    """End the process as other command line tools end when the reader of their output has exited."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    # The first process of a container ignores the signal.
    os._exit(_STATUS_OF_SIGNAL + signal.SIGPIPE)
