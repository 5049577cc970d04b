"""``python -m tests.bench.from_bytes`` works, with a cluster too small to measure anything."""

import subprocess
import sys

import pytest


@pytest.mark.kernel
def test_measurement_prints_its_results() -> None:
    command = [sys.executable, "-m", "tests.bench.from_bytes", "--services", "20", "--runs", "1"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert "times the commit" in process.stdout
    assert "settled: " in process.stdout
