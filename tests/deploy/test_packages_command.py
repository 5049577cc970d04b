"""``python -m deploy.packages`` refuses a time at which two builds would differ."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_time_in_the_future_is_an_error(tmp_path: Path) -> None:
    """Before anything is built."""
    seconds = int(time.time()) + 1_000_000
    done = subprocess.run(
        [sys.executable, "-m", "deploy.packages", "--output", str(tmp_path / "dist")],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}, capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    expected = f"packages: the time for files, {seconds}, is in the future: set SOURCE_DATE_EPOCH to an earlier one\n"
    assert (done.returncode, done.stderr) == (1, expected)
    assert not (tmp_path / "dist").exists()
