"""The identity of a directory changes with the directory, and with nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from knft.source.directory_identity import DirectoryIdentity, directory_identity

_OVERLAY = """
set -e
mkdir -p lower/manifests upper work merged
touch lower/manifests/a.yaml lower/manifests/b.yaml
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
exec "$0" -c "$1" merged/manifests
"""
_COMPARE = """
import os, sys
from knft.source.directory_identity import directory_identity
def identity():
    return directory_identity(os.open(sys.argv[1], os.O_RDONLY))
before = identity()
os.unlink(sys.argv[1] + "/a.yaml")
sys.exit(before != identity())
"""


def _identity(path: Path) -> DirectoryIdentity:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return directory_identity(descriptor)
    finally:
        os.close(descriptor)


def test_directory_that_was_created_again_has_another_identity(tmp_path: Path) -> None:
    """Also if it has the same inode number, as on ext4."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    before = _identity(folder)
    (folder / "a.yaml").touch()
    assert _identity(folder) == before
    (folder / "a.yaml").unlink()
    folder.rmdir()
    folder.mkdir()
    assert _identity(folder) != before


@pytest.mark.kernel
def test_first_change_in_a_lower_layer_keeps_the_identity(tmp_path: Path) -> None:
    """Overlayfs then creates the directory in the upper layer."""
    command = ["unshare", "--mount", "sh", "-c", _OVERLAY, sys.executable, _COMPARE]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
