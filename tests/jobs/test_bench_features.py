"""The benchmarks of optional features and of the daemon work, with too little to measure anything."""

import subprocess
import sys

import pytest

from tests.bench.daemon_targets import LABELS, QUICK_SHAPES

pytestmark = pytest.mark.kernel


def _output(module: str, *flags: str) -> str:
    command = [sys.executable, "-m", f"tests.bench.{module}", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def test_forwarder_is_measured() -> None:
    flags = ("--connections", "5", "--idle", "3", "--gigabytes", "0.01", "--runs", "1")
    found = dict(line.split(": ", 1) for line in _output("loopback_nodeports", *flags).splitlines())
    assert found.keys() >= {
        *("memory without connections", "a connection", "a GB through a connection"),
        "memory with 3 idle connections",
    }


def test_rule_for_invalid_packets_is_measured() -> None:
    found = _output("invalid_packets", "--packets", "10", "--runs", "1")
    assert [line.partition(":")[0] for line in found.splitlines() if "a packet" in line] == [
        "without the option",
        "with the option",
    ]


def test_targets_of_the_daemon_are_measured() -> None:
    rows = [line.split(" | ") for line in _output("daemon_targets", "--quick").splitlines() if line.startswith("| ")]
    measured = [row for row in rows if row[1][:1].isdigit()]
    assert len(measured) == len(LABELS) + 2 * len(QUICK_SHAPES)
    assert all(float(row[3]) > 0 for row in measured)
