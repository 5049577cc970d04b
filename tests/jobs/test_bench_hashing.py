"""``python -m tests.bench.hashing`` works, and its statistics are right."""

import re
import subprocess
import sys

import pytest

from tests.bench.hashing import chi_squared_p, shares


@pytest.mark.kernel
def test_measurement_prints_three_tables() -> None:
    command = [sys.executable, "-m", "tests.bench.hashing", "--endpoints", "3", "--clients", "1000", "--changes", "2"]
    command += ["--services", "2", "--affinity-clients", "5", "--rounds", "1"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows = [line.strip("| ").split(" | ") for line in process.stdout.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows].count("endpoints n") == 2
    assert [row[1] for row in rows if row[0] == "3"] == [
        "251",
        "**1021**",
        "4093",
        "16381",
        "65521",
        "one goes",
        "one comes",
    ]
    (hashed,) = [row for row in rows if row[0] == "`source-hash`"]
    (affinity,) = [row for row in rows if row[0].endswith("without clients")]
    (with_clients,) = [row for row in rows if row[0].endswith("5 clients for each")]
    assert float(hashed[1]) > 1021
    assert float(with_clients[1]) == float(affinity[1]) + 5
    assert re.search(r"^load: ", process.stdout, re.MULTILINE)


@pytest.mark.parametrize(("value", "freedom", "expected"), [(5.99, 2, 0.05), (16.92, 9, 0.05), (134.64, 99, 0.01)])
def test_p_is_that_of_tables(value: float, freedom: int, expected: float) -> None:
    assert chi_squared_p(value, freedom) == pytest.approx(expected, rel=0.05)


def test_shares_are_even_and_few_clients_move() -> None:
    found = shares(10, 1021, [number / 5000 for number in range(5000)])
    assert 0.99 < found.least <= 1 <= found.greatest < 1.01
    assert 0.08 < found.moved_if_one_goes < 0.2
    assert 0.07 < found.moved_if_one_comes < 0.2
