"""Runs commands in an image's files as a pod would."""

import subprocess
from pathlib import Path

from msgspec import Struct

from tests.support.lab.namespace import Namespace

_ISOLATED = ("--proc", "/proc", "--dev", "/dev", "--unshare-pid", "--unshare-ipc", "--clearenv", "--die-with-parent")


class Container(Struct, frozen=True):
    """The files of an image, in a network namespace."""

    root: Path
    namespace: Namespace

    def run(
        self,
        *command: str,
        mount: Path | None = None,
        capabilities: tuple[str, ...] = ("CAP_NET_ADMIN",),
        has_writable_run: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as uid 0 with only these capabilities.

        ``/run`` is the directory ``mount``, read-only, or an empty one that is writable.
        """
        arguments = [
            *("bwrap", "--ro-bind", str(self.root), "/", *_ISOLATED, "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *(("--ro-bind", str(mount), "/run") if mount is not None else ()),
            *(("--tmpfs", "/run") if has_writable_run else ()),
        ]
        return self.namespace.run([*arguments, "--", *command], check=False)

    def run_as_nobody(self, *command: str, stdin: str) -> subprocess.CompletedProcess[str]:
        """Run a command as uid 65534, without capabilities."""
        inside = ["chroot", "--userspec=65534:65534", str(self.root), *command]
        return self.namespace.run(inside, stdin=stdin, check=False)
