"""Ends the process when memory runs out.

After a failed allocation, any thread may have stopped in the middle of its work, and starting a thread or logging may
fail as well. The rules stay in the kernel, and the process is restarted. Handlers of all exceptions call
``exit_if_out_of_memory`` first.
"""

import os
import select
import sys
from collections.abc import Callable

EXIT_STATUS = 1
_THREAD_ERRORS = frozenset({"can't start new thread", "unable to start watchdog thread"})
"""Python's texts if there is no memory for a thread's stack, or the limit of threads is reached."""
_MAX_CAUSES = 10


def _discard_report(_text: str) -> bool:
    return False


_report: Callable[[str], bool] = _discard_report


def set_report(report: Callable[[str], bool]) -> None:
    """Pass the last message to ``report``, which returns whether it was written; if not, it goes to standard error."""
    global _report  # noqa: PLW0603 - like sys.excepthook
    _report = report


def out_of_memory_message(error: BaseException | None) -> str:
    """Return the message for an error because of memory, also if it happened while another was handled; else ""."""
    for _ in range(_MAX_CAUSES):
        if isinstance(error, MemoryError):
            return "out of memory; exiting, and the rules stay in the kernel"
        if isinstance(error, RuntimeError) and str(error) in _THREAD_ERRORS:
            return (
                "cannot start a thread: out of memory, or the limit of threads is reached; exiting, and the rules stay "
                "in the kernel"
            )
        if error is None:
            break
        error = error.__cause__ or error.__context__
    return ""


def exit_if_out_of_memory(error: BaseException | None) -> None:
    """End the process at once, with a message, if the error shows that memory has run out."""
    text = out_of_memory_message(error)
    if not text:
        return
    try:
        if not _report(text):
            _write(text)
    except BaseException:  # noqa: BLE001 - even the report needs memory
        _write(text)
    finally:
        os._exit(EXIT_STATUS)


def _write(text: str) -> None:
    """Write as much of ``text`` to standard error as fits without waiting for its reader."""
    if sys.__stderr__ is not None and select.select([], [2], [], 0)[1]:
        os.write(2, f"knft: {text}\n".encode())
