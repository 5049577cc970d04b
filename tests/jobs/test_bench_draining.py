"""``python -m tests.bench.draining`` works, with too few connections to measure anything."""

import subprocess
import sys

import pytest

from tests.bench.draining import CASES


@pytest.mark.kernel
def test_measurement_prints_its_results() -> None:
    command = [sys.executable, "-m", "tests.bench.draining", "--others", "100", "--rounds", "1"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows = [line.split(" | ") for line in process.stdout.splitlines() if line.startswith("| IPv")]
    assert [row[0].removeprefix("| ") for row in rows] == [name for name in CASES for _ in range(3)]
    assert [row[1] for row in rows[:3]] == ["none", "100", "100, listed meanwhile"]
    assert all(row[3] == row[5] == "1.00" for row in rows[::3])
