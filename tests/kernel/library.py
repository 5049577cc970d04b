"""libnftables for the tests, never in their own process: there its bugs would end them, and its memory be theirs."""

from knft.kernel.process import LibraryProcess
from tests.lab.namespace import Namespace


class LibraryIn:
    """libnftables in a namespace, from whichever the calling thread is in; in a process as knft has it."""

    def __init__(self, namespace: Namespace) -> None:
        """Start the process."""
        self._namespace = namespace
        with namespace.entered():
            self._process = LibraryProcess()

    def run(self, commands: str) -> str:
        """Carry out commands as LibraryProcess does."""
        # The call may start another process, in the place of one that has become large or has died.
        with self._namespace.entered():
            return self._process.run(commands)

    def close(self) -> None:
        """End the process, which keeps the namespace alive."""
        self._process.close()


_libraries: dict[Namespace, LibraryIn] = {}


def library_in(namespace: Namespace) -> LibraryIn:
    """Return the namespace's library: one for all who ask, which lives on while knft starts anew in a test."""
    if namespace not in _libraries:
        _libraries[namespace] = LibraryIn(namespace)
        namespace.at_close(lambda: _libraries.pop(namespace).close())
    return _libraries[namespace]
