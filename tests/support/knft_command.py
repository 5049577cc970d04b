"""knft commands in a namespace, and files of manifests for them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import fast_yaml
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace

KNFT = (sys.executable, "-m", "knft")
NODE_FLAG = ("--node", plan.NODE.node_name)


def write_manifests(folder: Path, objects: Sequence[dict[str, Any]]) -> None:
    """Write the objects as a file of YAML documents."""
    (folder / "objects.yaml").write_text(fast_yaml.dump_all(objects))


def knft(namespace: Namespace, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one knft command in a namespace."""
    done = namespace.run([*KNFT, *arguments], check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def remove_tables(namespace: Namespace) -> None:
    """Remove knft's tables, if they exist.

    ``knft cleanup`` takes ten seconds in the virtual machine. But with newer versions of libnftables the tables have an
    owner, and then only knft can remove them.
    """
    commands = "".join(f"add table {family} knft\ndelete table {family} knft\n" for family in ("ip", "ip6"))
    if namespace.run(["nft", "-f", "-"], stdin=commands, check=False).returncode != 0:
        knft(namespace, "cleanup")


def sync_once(namespace: Namespace, folder: Path, *flags: str) -> str:
    """Run ``knft run --once``; return its log."""
    return knft(namespace, "run", "--once", "--manifests", str(folder), *NODE_FLAG, *flags).stderr


def list_ruleset(namespace: Namespace) -> str:
    """Return the ruleset as text; nft must also be able to list it as JSON."""
    namespace.run(["nft", "-j", "list", "ruleset"])
    return namespace.run(["nft", "list", "ruleset"]).stdout
