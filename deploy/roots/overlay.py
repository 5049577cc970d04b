"""Overlay: a writable view of a root directory, in which commands run; the root directory stays as it is."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from deploy.roots.errors import RootError

_ENTER = Path(__file__).with_name("enter.sh")
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


class Overlay:
    """The view, with mount and PID namespaces of its own; a context manager, which ends its processes."""

    def __init__(
        self, root: Path, *, writable: Mapping[Path, str] | None = None, readable: Mapping[Path, str] | None = None
    ) -> None:
        """Take the root directory, and the host's paths that it shows at other places."""
        self._root = root
        self._mounts = [
            word
            for mode, paths in (("rw", writable or {}), ("ro", readable or {}))
            for source, target in paths.items()
            for word in (mode, str(source), target)
        ]
        self._open = ExitStack()
        self._enter: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        """Mount the view."""
        with ExitStack() as opened:
            scratch = opened.enter_context(tempfile.TemporaryDirectory(prefix="knft-root-"))
            command = ["unshare", *_NAMESPACES, "sh", str(_ENTER), str(self._root), scratch, *self._mounts]
            holder = opened.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            opened.callback(holder.kill)
            assert holder.stdout is not None  # noqa: S101 - a pipe
            if holder.stdout.readline() != "ready\n":
                msg = f"{self._root} cannot be mounted: see the messages above"
                raise RootError(msg)
            first = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0]
            self._enter = ("nsenter", f"--target={first}", "--mount", "--pid", "--root", "--")
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all processes of the view, and remove what they wrote."""
        self._open.close()

    def command(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the command of the host that runs a command in the view, with these variables besides the usual ones.

        The command ends with its caller. It has the network namespace of the caller.
        """
        variables = {**ENVIRONMENT, **(environment or {})}
        pairs = [f"{name}={value}" for name, value in variables.items()]
        # PID namespaces make nsenter start the command as its child, which would outlive it.
        return [*self._enter, "env", "-i", "--chdir=/", *pairs, "setpriv", "--pdeathsig", "TERM", "--", *command]

    def run(self, *command: str, environment: Mapping[str, str] | None = None, stdin: str = "") -> str:
        """Run a command in the view and return its standard output; raise RootError if it fails."""
        done = subprocess.run(
            self.command(command, environment), input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = f"{done.stdout[-8000:]}{done.stderr[-8000:]}".strip()
            msg = f"{' '.join(command)[:200]!r} failed with status {done.returncode}:\n{output}"
            raise RootError(msg)
        return done.stdout
