"""ImportLog: the modules that each process of a command imports."""

import os
from pathlib import Path

_RECORD_IMPORTS = """
import os, sys

file = open(os.path.join(os.environ["IMPORTS"], str(os.getpid())), "a", buffering=1)


def record(event, arguments):
    if event == "import":
        print(arguments[0], file=file)


sys.addaudithook(record)
"""
"""Python imports this as ``sitecustomize`` at its start; the hook sees each module that the process loads later."""


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
        """Return the modules that a process has imported, or has tried to import."""
        return set((self._imports / str(pid)).read_text().split())
