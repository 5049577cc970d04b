"""The daemon loads neither libnftables nor its Python binding; its worker process does.

See docs/design/worker-process.md#licences.
"""

import os
from pathlib import Path

import pytest

from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel

BINDING = {"nftables", "knft.kernel.libnftables"}

RECORD_IMPORTS = """
import os, sys

file = open(os.path.join(os.environ["IMPORTS"], str(os.getpid())), "a", buffering=1)


def record(event, arguments):
    if event == "import":
        print(arguments[0], file=file)


sys.addaudithook(record)
"""
"""Python imports this as ``sitecustomize`` at its start; the hook sees each module that the process loads later."""


def test_only_the_worker_process_loads_libnftables(namespace: Namespace, tmp_path: Path) -> None:
    """Both have synced a Service and a change of it."""
    hooks, imports = tmp_path / "hooks", tmp_path / "imports"
    hooks.mkdir()
    imports.mkdir()
    (hooks / "sitecustomize.py").write_text(RECORD_IMPORTS)
    python_path = os.pathsep.join(filter(None, [str(hooks), os.environ.get("PYTHONPATH")]))
    with KnftRun(namespace, tmp_path, before=["env", f"PYTHONPATH={python_path}", f"IMPORTS={imports}"]) as knft:
        knft.write_service(2)
        knft.wait_until(lambda: knft.has_cluster_ip(2))
        daemon = knft.process.pid
        (worker,) = worker_processes(daemon)
        modules = {pid: set((imports / str(pid)).read_text().split()) for pid in (daemon, worker)}
        maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in (daemon, worker)}
    assert "libnftables" not in maps[daemon]
    assert "libnftables" in maps[worker]
    assert "knft.kernel.process" in modules[daemon]
    assert not modules[daemon] & (BINDING | {"knft.kernel.worker"})
    assert modules[worker] >= BINDING
