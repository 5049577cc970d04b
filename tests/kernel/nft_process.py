"""libnftables for the tests, never in their own process: there it would end them all, and its memory be theirs.

It waits with select(), so that a process dies (SIGABRT) of the first change by a context whose socket has a number of
1024 or more. knft's own process for it has a handful of files; the tests' has had a thousand, most of them sockets of
contexts that nobody used any more.
"""

from knft.kernel.process import LibraryProcess
from tests.support.lab.namespace import Namespace


class LibraryIn:
    """libnftables in a namespace, from whichever the calling thread is in; in a process as knft has it."""

    def __init__(self, namespace: Namespace) -> None:
        """Start the process, which ends with the namespace; it would keep it alive."""
        self._namespace = namespace
        with namespace.entered():
            self._process = LibraryProcess()
        namespace.at_close(self._process.close)

    def run(self, commands: str) -> str:
        """Carry out commands as LibraryProcess does."""
        # The call may start another process, in the place of one that has become large or has died.
        with self._namespace.entered():
            return self._process.run(commands)


_libraries: dict[Namespace, LibraryIn] = {}


def library_in(namespace: Namespace) -> LibraryIn:
    """Return the namespace's library: one for all who ask, which lives on while knft starts anew in a test."""
    if namespace not in _libraries:
        _libraries[namespace] = LibraryIn(namespace)
        namespace.at_close(lambda: _libraries.pop(namespace))
    return _libraries[namespace]


def library_and_ports() -> tuple[LibraryProcess, frozenset[int]]:
    """Return a new process, in the thread's namespace, and its sockets' port ids; somebody has to close it."""
    told: list[frozenset[int]] = []
    library = LibraryProcess(told.append)
    library.run("list tables")
    return library, told[0]
