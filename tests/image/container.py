"""Runs commands in an image's files as a pod would."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tests.support.lab.namespace import Namespace
from tests.support.logged_process import LoggedProcess

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
        run = ("--tmpfs", "/run") if has_writable_run else ()
        return self.namespace.run(self._isolated(command, mount, capabilities, *run), check=False)

    def start(self, *command: str, mount: Path, log: Path) -> LoggedProcess:
        """Start a command as ``run`` runs it, with the capability NET_ADMIN; its standard error goes to ``log``."""
        return LoggedProcess(self.namespace, self._isolated(command, mount, ("CAP_NET_ADMIN",)), log)

    def _isolated(
        self, command: Sequence[str], mount: Path | None, capabilities: Sequence[str], *flags: str
    ) -> list[str]:
        """Return the command of bubblewrap."""
        return [
            *("bwrap", "--ro-bind", str(self.root), "/", *_ISOLATED, "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *(("--ro-bind", str(mount), "/run") if mount is not None else ()),
            *flags,
            *("--", *command),
        ]

    def run_as_nobody(self, *command: str, stdin: str) -> subprocess.CompletedProcess[str]:
        """Run a command as uid 65534, without capabilities."""
        inside = ["chroot", "--userspec=65534:65534", str(self.root), *command]
        return self.namespace.run(inside, stdin=stdin, check=False)
