"""``python -m tests.bench.service_counters`` works, with a cluster too small to measure anything."""

import re
import subprocess
import sys

import pytest

from tests.bench.service_counters import Figures, Reading, table

ROWS = ("first sync: CPU, s", "endpoint replaced: CPU, ms", "Service added: CPU, ms", "PSS of both processes, MiB")


@pytest.mark.kernel
def test_measurement_prints_its_results() -> None:
    """Each Service has two counters in each family: of all connections, and of those that are rejected."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.service_counters",
        "--services",
        "20",
        "--changes",
        "2",
        "--runs",
        "1",
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert re.findall(r"^\| ([^|]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", process.stdout, re.MULTILINE) == list(ROWS)
    assert "\n80 counters are read every 5 s\n" in process.stdout
    assert "\nload at the end: " in process.stdout


def test_table_has_medians_and_ratios() -> None:
    without = [Figures(value, 2.0, 3.0, 100.0, None) for value in (2.0, 1.0, 9.0)]
    counting = [Figures(value, 2.5, 3.3, 110.0, Reading(40_000, 42.0, 100.0, 17.0)) for value in (2.5, 2.4, 9.0)]
    assert list(table(without, counting))[2:] == [
        f"| {ROWS[0]} | 2 | 2.5 | 1.25 |",
        f"| {ROWS[1]} | 2 | 2.5 | 1.25 |",
        f"| {ROWS[2]} | 3 | 3.3 | 1.10 |",
        f"| {ROWS[3]} | 100 | 110 | 1.10 |",
        "40000 counters are read every 5 s",
        "a reading: 42 ms of CPU time, 0.84% of a core",
        "if all have changed: 100 ms more, 2.84% of a core",
        "text of a scrape: 17 ms of CPU time",
    ]
