"""The command that runs a module of knft in another process."""

import subprocess
import sys

import pytest

_PRINT = "from knft.module_command import module_command; print(*module_command('knft.example', '7')[1:])"


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ((), "-P -m knft.example 7"),
        (("-s",), "-P -s -m knft.example 7"),
        (("-s", "-B"), "-P -s -B -m knft.example 7"),
    ],
)
def test_process_has_the_flags_of_this_one(flags: tuple[str, ...], printed: str) -> None:
    command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", "-u", "PYTHONNOUSERSITE", sys.executable, *flags, "-c", _PRINT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{printed}\n"
