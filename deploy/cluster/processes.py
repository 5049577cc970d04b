"""Commands, and background processes that a later process can find and end."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from deploy.programs.errors import SetupError

CHECKOUT = Path(__file__).parents[2]
_STOP_SECONDS = 20.0
_LOG_LINES = 15


class ProcessRecord(Struct, frozen=True):
    """A process: its id, and its start time, because ids are used again."""

    pid: int
    started: str


def run(command: Sequence[str], what: str = "", stdin: str = "") -> str:
    """Return the output of a command; raise SetupError with its messages if it fails."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        msg = f"{what or command[0]} cannot be run: {error}"
        raise SetupError(msg) from error
    if done.returncode != 0:
        messages = (done.stderr or done.stdout).strip()[-2000:]
        msg = f"{what or ' '.join(command[:3])} failed with status {done.returncode}: {messages}"
        raise SetupError(msg)
    return done.stdout


def start(command: Sequence[str], log: Path, record: Path) -> None:
    """Start a process that outlives this one, and record it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        started = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    record.write_bytes(msgspec.json.encode(ProcessRecord(started.pid, _start_time(started.pid))))


def is_running(record: Path) -> bool:
    """Whether the recorded process exists."""
    return _read(record) is not None


def kill(record: Path) -> None:
    """Kill the recorded process, if it exists; raise SetupError if it does not end."""
    found = _read(record)
    if found is not None:
        os.kill(found.pid, signal.SIGKILL)
        deadline = time.monotonic() + _STOP_SECONDS
        while _read(record) is not None:
            if time.monotonic() > deadline:
                msg = f"process {found.pid} does not end after SIGKILL"
                raise SetupError(msg)
            time.sleep(0.02)
    record.unlink(missing_ok=True)


def _read(record: Path) -> ProcessRecord | None:
    """Return the recorded process if it exists and has not ended."""
    if not record.exists():
        return None
    found = msgspec.json.decode(record.read_bytes(), type=ProcessRecord)
    return found if found.started == _start_time(found.pid) else None


def _start_time(pid: int) -> str:
    """Return a process's start time in ticks, empty if it has ended; reap it if it is a child of this process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]


def not_started(what: str, log: Path) -> SetupError:
    """Return the error that something did not start, with the last lines of its log."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if log.exists() else []
    text = "".join(f"\n    {line[:300]}" for line in lines)
    return SetupError(f"{what} did not start; the last lines of {log}:{text}")
