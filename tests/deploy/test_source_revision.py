"""A build names its commit only if it is made of that commit's files."""

import subprocess
from pathlib import Path

from deploy.source_revision import source_revision


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_revision_is_the_commit_of_an_unchanged_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "knft").mkdir(parents=True)
    assert source_revision(checkout) == ""

    _git(checkout, "init", "--quiet")
    (checkout / "knft" / "file").write_text("one")
    assert source_revision(checkout) == ""

    _git(checkout, "add", ".")
    _git(checkout, "commit", "--quiet", "--message=one")
    assert source_revision(checkout) == _git(checkout, "rev-parse", "HEAD").strip()
    assert source_revision(checkout / "knft") == ""

    (checkout / "knft" / "file").write_text("two")
    assert source_revision(checkout) == ""
    _git(checkout, "checkout", "--quiet", "knft/file")
    (checkout / "knft" / "new").touch()
    assert source_revision(checkout) == ""
