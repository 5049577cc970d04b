"""The demo shows what it promises, also without privilege, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernel

DEMO = [sys.executable, "-m", "tests.demo"]
# Root without the capabilities is an ordinary user to the kernel: namespaces need a user namespace of their own.
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
HANG = 120


def _traces() -> set[str]:
    """Return the demo's temporary folders and the processes that run knft in it."""
    folders = {str(path) for path in Path(tempfile.gettempdir()).glob("knft-demo-*")}
    processes = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # It has ended meanwhile.
            continue
        if "knft-demo-" in command:
            processes.add(command)
    return folders | processes


@pytest.mark.parametrize("prefix", [[], WITHOUT_PRIVILEGE], ids=["as root", "without privilege"])
def test_the_demo_shows_what_it_promises(prefix: list[str]) -> None:
    """Who answered, how long syncs took, what was rejected; and nothing is lost while a Service is scaled."""
    before = _traces()
    done = subprocess.run([*prefix, *DEMO], capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    scaled = [row for row in rows if row[0] in {"8", "1", "5", "2", "3"} and len(row) == 5]
    assert [row[0] for row in scaled] == ["8", "1", "5", "2", "3"]
    assert {row[-1] for row in scaled} == {"0"}
    assert all(row[1].count("ms") == 2 for row in scaled)
    assert "rejected at once (ICMP port unreachable)" in done.stdout
    assert "its rules stay: 300 of 300 answered" in done.stdout
    assert before == _traces()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_demo_leaves_nothing_behind(number: signal.Signals) -> None:
    """But for a temporary folder when it is killed outright."""
    before = _traces()
    process = subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    next(line for line in process.stdout if "The first syncs" in line)
    os.kill(process.pid, number)
    process.communicate(timeout=HANG)
    deadline = time.monotonic() + HANG
    while (left := _left(before, number)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == set()
    # A process that is killed outright cannot remove its temporary folder.
    for folder in _traces() - before:
        shutil.rmtree(folder, ignore_errors=True)


def _left(before: set[str], number: signal.Signals) -> set[str]:
    traces = _traces() - before
    return {trace for trace in traces if number is not signal.SIGKILL or "python" in trace}
