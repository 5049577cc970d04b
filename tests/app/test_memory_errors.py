"""A failed allocation ends the process with a message, in whichever thread it happens."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import knft
from knft import memory_errors
from tests.support.log_lines import log_lines

SET_UP = """
import logging, threading, time
from knft.cli.logs import set_up_logging
from knft.configuration.settings import LoggingSettings
set_up_logging(LoggingSettings(format={form!r}, verbosity=0))
def fail(*_):
    raise MemoryError
"""
WAYS = {
    "main thread": "fail()",
    "another thread": "threading.Thread(target=fail).start()",
    "while another error is handled": "try:\n    fail()\nexcept MemoryError:\n    raise ValueError",
    "destructor": "class Object:\n    __del__ = fail\nObject()",
    "thread of the daemon": """
from knft.app.shutdown import Shutdown
Shutdown(threading.Event(), 60).start_thread("test", fail)
""",
    "thread that cannot start": """
import _thread
def refuse(*_):
    raise RuntimeError("can't start new thread")
threading._start_new_thread = refuse
threading.Thread(target=fail).start()
""",
    "HTTP thread": """
from knft.serve.http_thread import HttpThread
from knft.serve.timestamp import Clock
thread = HttpThread(None)
thread.start()
thread.call_soon(fail)
""",
}
TIMEOUT_SECONDS = 60
RULES_STAY = "exiting, and the rules stay in the kernel"


def run_python(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("way", WAYS)
def test_failed_allocation_ends_the_process(way: str, form: str) -> None:
    done = run_python(f"{SET_UP.format(form=form)}\n{WAYS[way]}\ntime.sleep({TIMEOUT_SECONDS})")
    (line,) = done.stderr.splitlines()
    message = json.loads(line)["msg"] if form == "json" else log_lines(line)[0].message
    reason = "cannot start a thread: out of memory, or the limit of threads is reached" if "start" in way else ""
    assert message == f"{reason or 'out of memory'}; {RULES_STAY}"
    assert done.returncode == 1


def test_message_needs_no_log() -> None:
    """Before logging is set up, and if logging fails."""
    code = (
        "from knft import memory_errors\n"
        "def fail(_):\n    raise MemoryError\n"
        "memory_errors.set_report(fail)\n"
        "memory_errors.exit_if_out_of_memory(ValueError())\n"
        "memory_errors.exit_if_out_of_memory(MemoryError())"
    )
    for text in (code, code.replace("memory_errors.set_report(fail)", "")):
        done = run_python(text)
        assert (done.returncode, done.stderr) == (1, f"knft: out of memory; {RULES_STAY}\n")


@pytest.mark.parametrize("free_mebibytes", [0, 1, 4, 16])
def test_watch_of_folders_ends_the_process_without_memory(tmp_path: Path, free_mebibytes: int) -> None:
    """RustNotify hangs, with the GIL, if it cannot start its thread and memory is short."""
    code = (
        "import os, resource, threading\n"
        "from watchfiles._rust_notify import RustNotify\n"
        "from knft.source.file_watch import watch_folders\n"
        "held = []\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size))\n"
        "for piece in (1 << 20, 1 << 16, 1 << 13, 4096, 1024, 512):\n"
        "    try:\n"
        "        while True:\n"
        "            held.append(bytearray(piece))\n"
        "    except MemoryError:\n"
        "        pass\n"
        f"del held[:{free_mebibytes}]\n"
        f"next(watch_folders(lambda: {{{str(tmp_path)!r}}}, threading.Event(), 10))\n"
        "os._exit(0)"
    )
    done = run_python(code)
    assert done.returncode in ({0, 1} if free_mebibytes else {1})
    assert (RULES_STAY in done.stderr or "MemoryError" in done.stderr) is (done.returncode == 1)


def test_watch_that_does_not_begin_ends_the_process(tmp_path: Path) -> None:
    """Native code that holds the GIL lets no other thread handle a signal."""
    code = (
        "import ctypes, sys, threading, types\n"
        "sleep = ctypes.PyDLL(None).sleep\n"
        f"stub = types.SimpleNamespace(RustNotify=lambda *_, **__: sleep({TIMEOUT_SECONDS}))\n"
        "sys.modules['watchfiles._rust_notify'] = stub\n"
        "from knft.source import file_watch\n"
        "file_watch.CREATION_SECONDS = 0.1\n"
        f"next(file_watch.watch_folders(lambda: {{{str(tmp_path)!r}}}, threading.Event(), 10))\n"
    )
    done = run_python(code)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.1")


def broad_handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Yield all handlers of Exception or BaseException, with their places."""
    for path in Path(knft.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and ast.unparse(node.type or ast.Constant("")).endswith("Exception"):
                yield f"{path}:{node.lineno}", node


def test_handlers_of_all_exceptions_do_not_hide_a_failed_allocation() -> None:
    hiding = [
        place
        for place, handler in broad_handlers()
        if not isinstance(handler.body[-1], ast.Raise)
        and "exit_if_out_of_memory(" not in ast.unparse(handler.body[0])
        and place.rpartition(":")[0] != memory_errors.__file__
    ]
    assert hiding == []
