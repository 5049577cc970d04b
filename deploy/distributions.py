"""Builds knft's sdist and wheel with pinned wheels of the build system: another version of it gives other files."""

import sys
from pathlib import Path
from typing import Literal

from deploy.image.commands import pip, run
from deploy.image.fetch import fetch_build_wheels


def build_distribution(kind: Literal["sdist", "wheel"], sources: Path, folder: Path, seconds: int) -> Path:
    """Build a distribution of the sources into ``folder``; its files get the time ``seconds`` since 1970.

    ``folder`` is also a place for the build system. Raises ImageError if that is not possible.
    """
    builder = folder / "builder"
    if not builder.exists():
        wheels = sorted(fetch_build_wheels().glob("*.whl"))
        pip("install", "--no-deps", "--no-index", "--target", str(builder), *map(str, wheels))
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    run(command, {"SOURCE_DATE_EPOCH": str(seconds), "PYTHONPATH": str(builder)}, sources)
    (found,) = folder.glob("knft-*.tar.gz" if kind == "sdist" else "knft-*.whl")
    return found
