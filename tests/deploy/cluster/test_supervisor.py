"""Processes of the supervisor, without namespaces: this process takes the place of a machine's process 1."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster.machine import Machine
from deploy.programs.errors import SetupError
from tests.support.processes import child_processes
from tests.support.waiting import wait_until

_CODE = """
import sys
from pathlib import Path
from deploy.cluster.supervisor import supervise
supervise(Path(sys.argv[1]))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Yield a machine whose process 1 is an ordinary process."""
    found = Machine("node1", tmp_path / "machine", tmp_path)
    found.folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", _CODE, str(found.folder)]) as process:

        def check() -> None:
            assert process.poll() is None, "the supervisor has ended"

        wait_until((found.folder / "control.sock").exists, "the supervisor does not listen", check)
        yield found
        for pid in child_processes(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()


def _wait_for_text(path: Path, text: str) -> None:
    def read() -> str:
        return path.read_text() if path.exists() else f"{path} is missing"

    wait_until(lambda: read() == text, read)


def test_process_is_started_and_stopped(machine: Machine) -> None:
    machine.start_process("web", ["sleep", "600"])
    assert machine.running_processes() == ["web"]
    assert machine.exit_status("web") is None
    assert machine.stop_process("web") == -signal.SIGTERM
    assert machine.running_processes() == []
    assert machine.stop_process("web") == -signal.SIGTERM


def test_output_goes_to_the_log_and_the_environment_is_set(machine: Machine) -> None:
    machine.start_process("web", ["sh", "-c", "printf $GREETING"], {"GREETING": "hello"})
    _wait_for_text(machine.log("web"), "hello")


def test_ended_process_is_started_again_until_it_is_stopped(machine: Machine) -> None:
    machine.start_process("web", ["sh", "-c", "printf x; sleep 600"], restart=True)
    _wait_for_text(machine.log("web"), "x")
    machine.signal_process("web", signal.SIGKILL)
    _wait_for_text(machine.log("web"), "xx")
    machine.stop_process("web")
    time.sleep(1.2)  # Nothing reports that no process is started.
    assert machine.log("web").read_text() == "xx"


def test_second_start_and_missing_command_are_refused(machine: Machine) -> None:
    machine.start_process("web", ["sleep", "600"])
    with pytest.raises(SetupError, match="web: it is running"):
        machine.start_process("web", ["sleep", "600"])
    with pytest.raises(SetupError, match="no-such-command"):
        machine.start_process("other", ["no-such-command"])
    with pytest.raises(SetupError, match="other was not started on node1"):
        machine.exit_status("other")


def test_machine_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="node7 does not run"):
        Machine("node7", tmp_path / "none", tmp_path).running_processes()
