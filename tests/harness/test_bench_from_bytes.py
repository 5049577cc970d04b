"""The measurement from bytes to the commit works, with a cluster that is too small to measure anything."""

import subprocess
import sys

import pytest


@pytest.mark.kernel
def test_it_measures() -> None:
    command = [sys.executable, "-m", "tests.bench.from_bytes", "--services", "20", "--runs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "times the commit" in done.stdout
    assert "settled: " in done.stdout
