"""``python -m tests.bench.large_sync`` works, with a cluster too small to exceed a limit."""

import subprocess
import sys

import pytest

from tests.bench.large_sync import Limits, Measurement


@pytest.mark.kernel
def test_measurement_prints_its_results() -> None:
    command = [sys.executable, "-m", "tests.bench.large_sync", "--services", "20"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    first, restart = process.stdout.splitlines()
    assert first.startswith("first sync of 20 x 10: ")
    assert ", 0 elements sent, " in restart


def test_exceeded_limits_are_problems() -> None:
    limits = Limits(cpu_s=4.0, peak_mib=250.0)
    assert limits.problems("restart", Measurement(4.0, 100.0, 250.0, 0)) == []
    assert limits.problems("restart", Measurement(4.5, 100.0, 251.0, 0)) == [
        "restart: 4.5 s of CPU time, allowed are 4",
        "restart: 251.0 MiB, allowed are 250",
    ]
