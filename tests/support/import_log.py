"""ImportLog: the modules that each process of a command has imported."""

import os
from pathlib import Path

_RECORD_IMPORTS = """
import os, sys

file = open(os.path.join(os.environ["IMPORTS"], str(os.getpid())), "a", buffering=1)
known = set(sys.modules)
count = len(known)


def record(event, arguments):
    global count
    if len(sys.modules) != count:
        current = set(sys.modules)
        new = current - known
        count = len(current)
        known.update(new)
        print(*new, sep="\\n", file=file)


sys.addaudithook(record)
"""
"""Python imports this as ``sitecustomize`` at its start. At each audit event, the hook writes what was added to
``sys.modules`` since the last one. So it finds modules that ``importlib.import_module`` imports, which has no event of
its own in Python 3.11, and no modules that a package tries to import but that do not exist.

A thread that waits until a test asks would be simpler, but knft cannot drop capabilities while it has several threads.
"""


class ImportLog:
    """Records imports of a command that starts with ``prefix``."""

    def __init__(self, folder: Path) -> None:
        """Write the hook into a folder that is used for nothing else."""
        hooks, self._imports = folder / "hooks", folder / "imports"
        hooks.mkdir(parents=True)
        self._imports.mkdir()
        (hooks / "sitecustomize.py").write_text(_RECORD_IMPORTS)
        python_path = os.pathsep.join(filter(None, [str(hooks), os.environ.get("PYTHONPATH")]))
        self.prefix = ("env", f"PYTHONPATH={python_path}", f"IMPORTS={self._imports}")

    def modules(self, pid: int) -> set[str]:
        """Return the modules that a process has imported since Python's own start."""
        return set((self._imports / str(pid)).read_text().split())
