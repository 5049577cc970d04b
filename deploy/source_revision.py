"""The commit that built files come from."""

import subprocess
from pathlib import Path


def source_revision(checkout: Path) -> str:
    """Return the newest commit of ``checkout``; nothing without git, or if files differ from that commit."""
    top, changes = _git(checkout, "rev-parse", "--show-toplevel"), _git(checkout, "status", "--porcelain")
    if top is None or Path(top).resolve() != checkout.resolve() or changes != "":
        return ""
    return _git(checkout, "rev-parse", "HEAD") or ""


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return what git prints, None if it fails."""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
