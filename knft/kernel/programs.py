"""Other people's programs, run with a list of words and never through a shell."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from knft.errors import KernelError

_ADMIN_FOLDERS = ("/usr/sbin", "/sbin")
"""Where such programs live on Debian, outside an ordinary user's and many a service's PATH."""


def find(name: str) -> str | None:
    """Return the path of a program, or None where it is not installed."""
    folders = (os.environ.get("PATH", os.defpath), *_ADMIN_FOLDERS)
    return shutil.which(name, path=os.pathsep.join(folders))


def run(argv: Sequence[str], seconds: float, stdin: str = "") -> str:
    """Run a program and return what it wrote to standard output.

    Raises KernelError with its own words where it fails, cannot be started, or takes longer than ``seconds``.
    """
    name = os.path.basename(argv[0])  # noqa: PTH119 - a word for people, not a file
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, check=False, timeout=seconds, text=True, errors="surrogateescape"
        )
    except subprocess.TimeoutExpired as error:
        msg = f"{name} did not end within {seconds:g} s"
        raise KernelError(msg) from error
    except OSError as error:
        msg = f"{name} cannot be run: {error.strerror}"
        raise KernelError(msg) from error
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).strip()
        said = " ".join(detail.split()) or f"status {done.returncode}"
        msg = f"{' '.join((name, *argv[1:]))}: {said}"
        raise KernelError(msg, detail)
    return done.stdout
