"""``make test-packages`` fails if the tests of one release fail or are killed, whichever release it is."""

import subprocess

import pytest

from deploy.packages.releases import TARGETS
from tests.packages import __main__ as job

KILLED = "kill -KILL $$"


@pytest.mark.parametrize(
    ("of_first", "of_others", "expected"),
    [("exit 0", "exit 0", 0), ("exit 1", "exit 0", 1), ("exit 0", "exit 1", 1), (KILLED, "exit 0", -9),
     ("exit 0", KILLED, -9)],
)  # fmt: skip
def test_each_process_decides_the_result(
    monkeypatch: pytest.MonkeyPatch, of_first: str, of_others: str, expected: int
) -> None:
    (first, *_) = TARGETS
    scripts = {first: of_first, f"not {first}": of_others}

    def start(*options: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["/bin/sh", "-c", scripts.pop(options[-1])])

    monkeypatch.setattr(job, "_start_pytest", start)
    assert job._run_in_two_processes() == expected
    assert not scripts
