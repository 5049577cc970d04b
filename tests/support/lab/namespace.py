"""A network namespace, held by a file descriptor only.

A socket stays in the namespace in which it was made, and a child process starts in the namespace of the thread that
starts it. So a thread enters a namespace, makes what it needs, and returns: no helper process holds the namespace.
"""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
# os.unshare and os.setns exist from Python 3.12 on.
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces, of the kinds in ``flags`` (CLONE_NEW...)."""
    if _libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"unshare: {os.strerror(code)}")


def _set_namespace(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def _open_own_namespace() -> int:
    return os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)


class Namespace:
    """One network namespace. The kernel removes it when it is closed and has no socket and no process left."""

    def __init__(self, name: str, fd: int) -> None:
        """Own ``fd``, an open file of the namespace."""
        self.name = name
        self.fd = fd
        self._at_close = ExitStack()

    @classmethod
    def create(cls, name: str) -> "Namespace":
        """Make an empty namespace; ``name`` is used in messages only."""
        made: list[int] = []
        failures: list[OSError] = []

        def make() -> None:
            try:
                unshare(CLONE_NEWNET)
                made.append(_open_own_namespace())
            except OSError as error:
                failures.append(error)

        # In a thread of its own, so that a failure leaves the calling thread where it is.
        thread = threading.Thread(target=make, name=f"make-{name}")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return cls(name, made[0])

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Switch the calling thread (only this one) into the namespace, and back at the end."""
        before = _open_own_namespace()
        try:
            _set_namespace(self.fd)
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    def call_at_close(self, callback: Callable[[], object]) -> None:
        """Call ``end`` when the namespace is closed: it ends a process that would keep the namespace alive."""
        self._at_close.callback(callback)

    def close(self) -> None:
        """Close the namespace; closing it twice is allowed."""
        self._at_close.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def run(self, argv: Sequence[str], *, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespace; with ``check``, raise CalledProcessError if it fails."""
        with self.entered():
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            failure = subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
            failure.add_note(f"in namespace {self.name}, its output:\n{done.stderr or done.stdout}")
            raise failure
        return done

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program in the namespace. The caller must end it, because it keeps the namespace alive."""
        with self.entered():
            return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, text=True)

    def sysctl(self, key: str, value: int | str) -> None:
        """Set a sysctl of the namespace, such as ``net.ipv4.ip_forward``."""
        with self.entered():
            _sysctl_path(key).write_text(str(value))

    def read_sysctl(self, key: str) -> str:
        """Return a sysctl of the namespace."""
        with self.entered():
            return _sysctl_path(key).read_text().strip()

    def sysctls(self, settings: Mapping[str, int | str]) -> None:
        """Set sysctls of the namespace; those that this kernel does not have are skipped."""
        with self.entered():
            for key, value in settings.items():
                with suppress(FileNotFoundError):
                    _sysctl_path(key).write_text(str(value))


def _sysctl_path(key: str) -> Path:
    return Path("/proc/sys", *key.split("."))
