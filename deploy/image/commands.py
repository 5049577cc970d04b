"""Runs commands; a failure becomes an ImageError with what the command has written."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.image.errors import ImageError
from deploy.image.variant import Architecture, Variant


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Return the standard output of a command, run in ``folder`` if given; raise ImageError if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **(environment or {})}
        )
    except OSError as error:
        msg = f"{command[0]} cannot be run: {error}"
        raise ImageError(msg) from error
    if done.returncode != 0:
        msg = f"{' '.join(command[:3])} failed with status {done.returncode}:\n{(done.stderr or done.stdout).strip()}"
        raise ImageError(msg)
    return done.stdout


def pip(subcommand: str, *arguments: str) -> str:
    """Run pip of this Python."""
    return run([sys.executable, "-m", "pip", subcommand, "--disable-pip-version-check", "--quiet", *arguments])


def target_flags(variant: Variant, architecture: Architecture, target: Path) -> tuple[str, ...]:
    """Return the flags with which pip selects wheels for the image, and not for this machine."""
    platforms = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    return (
        *("--only-binary", ":all:", "--implementation", "cp", "--python-version", variant.python),
        *(flag for each in platforms for flag in ("--platform", f"{each}_{architecture.machine}")),
        *("--target", str(target)),
    )
