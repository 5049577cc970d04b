"""``knft``: runs a command, and ends with its exit status."""

import atexit
import contextlib
import logging
import os
import sys
import threading

from knft.cli.commands import COMPLETION_VARIABLE, cli
from knft.cli.error_output import print_error
from knft.cli.streams import discard_output, replace_closed_streams
from knft.errors import ApiServerError, ConfigurationChangedError, ControlError, KernelError, KnftError, ServingError

STATUS_FAILED, STATUS_USAGE_ERROR = 1, 2
"""Exit statuses: 1 for a failure that may not happen again; 2 for invalid usage or input, or an unsupported host."""
_FAILURES = (KernelError, ApiServerError, ConfigurationChangedError, ControlError, ServingError)


def main() -> None:
    """Run the command line; print errors of knft and turn them into an exit status."""
    replace_closed_streams()
    logging.captureWarnings(capture=True)
    if COMPLETION_VARIABLE in os.environ:
        from knft.cli.completion import register  # noqa: PLC0415 - loads click's completion

        register()
    try:
        _run_command()
    except SystemExit as end:
        if threading.active_count() > 1 and isinstance(end.code, int):
            _exit_beside_threads(end.code)
        raise


def _run_command() -> None:
    try:
        cli(complete_var=COMPLETION_VARIABLE)
    except OSError as error:
        # Other errors of files and the kernel are KnftErrors: this one is about standard output.
        print_error(f"cannot write the output: {error.strerror}")
        discard_output()
        sys.exit(STATUS_FAILED)
    except KnftError as error:
        for line in str(error).splitlines():
            print_error(line)
        failed = isinstance(error, _FAILURES)
        sys.exit(STATUS_FAILED if failed else STATUS_USAGE_ERROR)


def _exit_beside_threads(status: int) -> None:
    """End the process without Python's finalization.

    Until 3.13, that ends a thread which returns from native code by pthread_exit: watchfiles, which is written in Rust,
    then crashes with SIGSEGV (seen on Debian 13), although everything is done.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
