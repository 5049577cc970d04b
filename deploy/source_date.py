"""The time that built files get, so that equal sources give equal files."""

import os
import subprocess
from pathlib import Path


class SourceDateError(Exception):
    """The time is unknown; the text says what to do."""


def source_date_epoch(checkout: Path) -> int:
    """Return the time in seconds since 1970: SOURCE_DATE_EPOCH, or that of the newest commit of ``checkout``.

    Raises SourceDateError if neither is known.
    """
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        if not given.isdecimal():
            msg = f"SOURCE_DATE_EPOCH is {given!r}; set it to seconds since 1970"
            raise SourceDateError(msg)
        return int(given)
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = "set SOURCE_DATE_EPOCH: the time of the newest commit is unknown"
        raise SourceDateError(msg)
    return int(done.stdout)
