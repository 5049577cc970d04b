"""Output does not depend on the order of sets: processes with other hash seeds print the same."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["status", "history", "top", "preflight"])
def test_output_is_equal_in_processes_with_other_hashes(command: str, output: str) -> None:
    flags = ("-o", "json") if output == "json" else ()
    argv = [sys.executable, "-m", "tests.cli.answered", command, *flags]
    found = {
        subprocess.run(
            argv, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
        ).stdout
        for seed in ("1", "2", "3")
    }
    (printed,) = found
    assert printed
