"""``make demo`` prints its results, also without root, and leaves no processes or files behind."""

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
# Without these capabilities, root needs a user namespace to create network namespaces.
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
TIMEOUT = 120


def _remains() -> set[str]:
    """Return the demo's temporary directories, and the processes that run knft in them."""
    folders = {str(path) for path in Path(tempfile.gettempdir()).glob("knft-demo-*")}
    processes = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # The process has ended.
            continue
        if "knft-demo-" in command:
            processes.add(command)
    return folders | processes


@pytest.mark.parametrize("prefix", [[], WITHOUT_PRIVILEGE], ids=["as root", "without privilege"])
def test_demo_shows_answers_syncs_and_rejections(prefix: list[str]) -> None:
    """No connection is lost while a Service is scaled."""
    before = _remains()
    process = subprocess.run([*prefix, *DEMO], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert process.returncode == 0, process.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in process.stdout.splitlines() if "│" in line]
    scaled = [row for row in rows if row[0] in {"8", "1", "5", "2", "3"} and len(row) == 5]
    assert [row[0] for row in scaled] == ["8", "1", "5", "2", "3"]
    assert {row[-1] for row in scaled} == {"0"}
    assert all(row[1].count("ms") == 2 for row in scaled)
    assert "rejected at once (ICMP port unreachable)" in process.stdout
    assert "its rules stay: 300 of 300 answered" in process.stdout
    assert before == _remains()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_demo_leaves_nothing_behind(number: signal.Signals) -> None:
    """SIGKILL may leave a temporary directory."""
    before = _remains()
    process = subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    next(line for line in process.stdout if "The first syncs" in line)
    os.kill(process.pid, number)
    process.communicate(timeout=TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while (left := _left_behind(before, number)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == set()
    # A process cannot remove its temporary directory when SIGKILL ends it.
    for folder in _remains() - before:
        shutil.rmtree(folder, ignore_errors=True)


def _left_behind(before: set[str], number: signal.Signals) -> set[str]:
    traces = _remains() - before
    return {item for item in traces if number is not signal.SIGKILL or "python" in item}
