"""The files of a checkout that an image is built from."""

import hashlib
import shutil
from pathlib import Path

_INPUTS = (
    *("deploy/__init__.py", "deploy/distributions.py", "deploy/image", "deploy/installer.py"),
    *("compat/knft_compat", "knft", "LICENSE", "LICENSES", "README.md", "pyproject.toml"),
)


def input_files(checkout: Path) -> list[Path]:
    """Return the inputs."""
    found = []
    for name in _INPUTS:
        path = checkout / name
        found += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def inputs_digest(checkout: Path) -> str:
    """Return a digest of the names and contents of the inputs."""
    digest = hashlib.sha256()
    for path in input_files(checkout):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(checkout)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def copy_inputs(checkout: Path, target: Path) -> None:
    """Copy the inputs into another directory."""
    for path in input_files(checkout):
        copy = target / path.relative_to(checkout)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
