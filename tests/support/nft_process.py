"""libnftables for tests, always in a process of its own: a crash would end the test run, and its memory would grow.

It uses select(), so a context whose socket is file descriptor 1024 or later aborts the process (SIGABRT) on its first
change. knft's worker has a few open files; the test process has had a thousand.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from knft.kernel.process import WorkerProcess
from knft.kernel.worker_messages import SetPart
from tests.support.lab.namespace import Namespace


class NamespacedLibrary:
    """libnftables for one namespace, from any namespace of the calling thread."""

    def __init__(self, namespace: Namespace) -> None:
        """Start the process. It ends with the namespace, which it would keep alive."""
        self._namespace = namespace
        with namespace.entered():
            self._process = WorkerProcess()
        namespace.call_at_close(self._process.close)

    def run(self, commands: str, *, terse: bool = False) -> str:
        """Run commands as WorkerProcess does."""
        # The call may start a new process in place of a large or dead one.
        with self._namespace.entered():
            return self._process.run(commands, terse=terse)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        """Read elements as WorkerProcess does."""
        with self._namespace.entered():
            self._process.dump_elements(family, table, names, receive)

    def peak_memory(self) -> int:
        """Return the largest resident memory that the process has had, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])


_libraries: dict[Namespace, NamespacedLibrary] = {}


def library_in(namespace: Namespace) -> NamespacedLibrary:
    """Return the namespace's library, shared by all callers; it survives restarts of knft within a test."""
    if namespace not in _libraries:
        _libraries[namespace] = NamespacedLibrary(namespace)
        namespace.call_at_close(lambda: _libraries.pop(namespace))
    return _libraries[namespace]


def library_and_ports() -> tuple[WorkerProcess, frozenset[int]]:
    """Return a new process in the thread's namespace and the port ids of its sockets; the caller closes it."""
    ports: list[frozenset[int]] = []
    library = WorkerProcess(ports.append)
    library.run("list tables")
    return library, ports[0]
