"""Runs other programs, with an argument list and without a shell."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from knft.errors import KernelError

_ADMIN_FOLDERS = ("/usr/sbin", "/sbin")
"""Where Debian installs such programs; not in the PATH of ordinary users and many services."""


def find(name: str) -> str | None:
    """Return the path of a program, or None if it is not installed."""
    folders = (os.environ.get("PATH", os.defpath), *_ADMIN_FOLDERS)
    return shutil.which(name, path=os.pathsep.join(folders))


def run(argv: Sequence[str], seconds: float, stdin: str = "") -> str:
    """Run a program and return its standard output.

    Raises KernelError with the program's error output if it fails, cannot be started, or takes longer than ``seconds``.
    """
    name = os.path.basename(argv[0])  # noqa: PTH119 - for messages only
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, check=False, timeout=seconds, text=True, errors="surrogateescape"
        )
    except subprocess.TimeoutExpired as error:
        msg = f"{name} did not finish within {seconds:g} s"
        raise KernelError(msg) from error
    except OSError as error:
        msg = f"cannot run {name}: {error.strerror}"
        raise KernelError(msg) from error
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).strip()
        error_text = " ".join(detail.split()) or f"status {done.returncode}"
        msg = f"{' '.join((name, *argv[1:]))}: {error_text}"
        raise KernelError(msg, detail)
    return done.stdout
